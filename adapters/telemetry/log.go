package telemetry

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

// LogOptions holds the flags of the logger, which have the reference's names.
type LogOptions struct {
	Verbosity  int
	Devel      bool
	Encoder    string
	Level      string
	Stacktrace string
	TimeFormat string
}

// What each verbosity adds to the one before; the steps are those of the reference.
const (
	faultsOnly  = 0 // warnings and errors
	processToo  = 1 // the life of the process
	someRequest = 2 // a line for a sample of requests
	allRequests = 3 // a line for every request
	withScores  = 4 // the scores of every endpoint in that line
	withEvents  = 5 // every message of the request in that line
)

// Register adds the flags to f.
func (o *LogOptions) Register(f *pflag.FlagSet) {
	f.IntVarP(&o.Verbosity, "v", "v", someRequest,
		"verbosity: 0 warnings and errors, 1 start, stop and changes too, 2 a sampled line per request, "+
			"3 every request, 4 with the scores of all endpoints, 5 with every message")
	f.BoolVar(&o.Devel, "zap-devel", false, "console lines, verbosity 4, stacks from warnings on")
	f.StringVar(&o.Encoder, "zap-encoder", "", "json or console; empty is console on a terminal, json elsewhere")
	f.StringVar(&o.Level, "zap-log-level", "",
		"debug (verbosity 4), info (verbosity 2), a number (that verbosity), warn, error or panic; empty follows -v")
	f.StringVar(&o.Stacktrace, "zap-stacktrace-level", "",
		"level from which on lines carry a stack: info, warn, error or panic; empty is panic, with --zap-devel warn")
	f.StringVar(&o.TimeFormat, "zap-time-encoding", "",
		"epoch, millis, nano, iso8601, rfc3339 or rfc3339nano; empty is rfc3339 in json, "+
			"iso8601, which has milliseconds, in console")
}

// Encoders are the values of --zap-encoder.
var Encoders = []string{"json", "console"}

var timeEncoders = map[string]zapcore.TimeEncoder{
	"epoch": zapcore.EpochTimeEncoder, "millis": zapcore.EpochMillisTimeEncoder, "nano": zapcore.EpochNanosTimeEncoder,
	"iso8601": zapcore.ISO8601TimeEncoder, "rfc3339": zapcore.RFC3339TimeEncoder,
	"rfc3339nano": zapcore.RFC3339NanoTimeEncoder,
}

// Check returns what is wrong with the flags.
func (o *LogOptions) Check() error {
	if o.Verbosity < faultsOnly || o.Verbosity > withEvents {
		return fmt.Errorf("--v: got %d, want %d to %d", o.Verbosity, faultsOnly, withEvents)
	}
	if !slices.Contains(Encoders, o.Encoder) && o.Encoder != "" {
		return fmt.Errorf("--zap-encoder: got %q, want json or console", o.Encoder)
	}
	if _, ok := timeEncoders[strings.ToLower(o.TimeFormat)]; !ok && o.TimeFormat != "" {
		return fmt.Errorf("--zap-time-encoding: got %q, want epoch, millis, nano, iso8601, rfc3339 or rfc3339nano",
			o.TimeFormat)
	}
	if _, _, err := o.level(); err != nil {
		return err
	}
	if _, err := o.stacks(); err != nil {
		return err
	}
	return nil
}

// level returns the lowest level that is written, and the verbosity, which says how much is logged of requests.
func (o *LogOptions) level() (zapcore.Level, int, error) {
	verbosity := o.Verbosity
	if o.Devel {
		verbosity = max(verbosity, withScores)
	}
	if o.Level != "" {
		if n, err := strconv.Atoi(o.Level); err == nil && n >= processToo && n <= withEvents {
			verbosity = n
		} else if l, err := zapcore.ParseLevel(o.Level); err != nil || n < 0 || l > zapcore.PanicLevel ||
			l == zapcore.DPanicLevel {
			return 0, 0, fmt.Errorf("--zap-log-level: got %q, want debug, info, warn, error, panic or a number from "+
				"1 to 5", o.Level)
		} else if l > zapcore.InfoLevel {
			return l, faultsOnly, nil
		} else if verbosity = someRequest; l == zapcore.DebugLevel {
			verbosity = withScores
		}
	}
	switch {
	case verbosity >= withScores:
		return zapcore.DebugLevel, verbosity, nil
	case verbosity >= processToo:
		return zapcore.InfoLevel, verbosity, nil
	}
	return zapcore.WarnLevel, verbosity, nil
}

// stacks returns the lowest level whose lines carry a stack. Errors carry none by default: an error that is logged was
// expected, such as a file that cannot be read, and where its line was written tells nothing. The line of a panic has
// the panic's stack in a field of its own.
func (o *LogOptions) stacks() (zapcore.Level, error) {
	if o.Stacktrace == "" {
		if o.Devel {
			return zapcore.WarnLevel, nil
		}
		return zapcore.PanicLevel, nil
	}
	l, err := zapcore.ParseLevel(o.Stacktrace)
	if err != nil {
		return 0, fmt.Errorf("--zap-stacktrace-level: got %q, want info, warn, error or panic", o.Stacktrace)
	}
	return l, nil
}

// Log is the logger of the process. Lines that repeat are sampled: of each text the first hundred in a second are
// written, then one in a hundred. Writing never waits for the reader.
type Log struct {
	*zap.Logger
	Sink     *Sink
	requests *zap.Logger // nil = requests are not logged
	detail   int         // verbosity of requests' lines
}

// New returns the logger, which writes to out until Close. The flags must have passed Check.
func (o *LogOptions) New(out io.Writer) (*Log, error) {
	level, verbosity, err := o.level()
	if err != nil {
		return nil, err
	}
	stack, err := o.stacks()
	if err != nil {
		return nil, err
	}
	encoder := o.encoder(isTerminal(out))
	sink := NewSink(out, sinkBytes, func(lost uint64) []byte { return notice(encoder, lost) })
	all := zapcore.NewCore(encoder, sink, level)
	sampled := zapcore.NewSamplerWithOptions(all, time.Second, 100, 100)
	options := []zap.Option{zap.AddCaller(), zap.AddStacktrace(stack), zap.ErrorOutput(sink)}
	if o.Devel {
		options = append(options, zap.Development())
	}
	l := &Log{Logger: zap.New(sampled, options...), Sink: sink, detail: verbosity}
	switch {
	case verbosity >= allRequests:
		l.requests = zap.New(all, options...)
	case verbosity == someRequest:
		l.requests = l.Logger
	}
	return l, nil
}

// Close writes the lines that are left. It takes two seconds at most.
func (l *Log) Close() error { return l.Sink.Close() }

// encoder returns the encoder of lines: text for people, or JSON for what collects logs.
func (o *LogOptions) encoder(terminal bool) zapcore.Encoder {
	c := zap.NewProductionEncoderConfig()
	console := o.Encoder == "console" || o.Encoder == "" && (terminal || o.Devel)
	c.EncodeTime = timeEncoders[strings.ToLower(cmp.Or(o.TimeFormat, "rfc3339"))]
	if !console {
		return zapcore.NewJSONEncoder(c)
	}
	c.EncodeTime = timeEncoders[strings.ToLower(cmp.Or(o.TimeFormat, "iso8601"))]
	c.EncodeLevel = zapcore.CapitalLevelEncoder
	c.EncodeDuration = func(d time.Duration, to zapcore.PrimitiveArrayEncoder) {
		to.AppendString(d.Round(time.Microsecond).String())
	}
	c.ConsoleSeparator = "  "
	if !o.Devel {
		c.CallerKey = "" // the place in the source helps only developers
	}
	return zapcore.NewConsoleEncoder(c)
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// notice returns the line that stands in the place of lines that were dropped.
func notice(encoder zapcore.Encoder, lost uint64) []byte {
	entry := zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(),
		Message: "log lines were dropped: the reader is too slow"}
	b, err := encoder.EncodeEntry(entry, []zapcore.Field{zap.Uint64("lines", lost)})
	if err != nil {
		return []byte("log lines were dropped\n")
	}
	return bytes.Clone(b.Bytes())
}
