package telemetry

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LogOptions are the flags of the logger, by the reference's names.
type LogOptions struct {
	Verbosity  int
	Devel      bool
	Encoder    string
	Level      string
	Stacktrace string
	TimeFormat string
}

// Register adds the flags.
func (o *LogOptions) Register(f *pflag.FlagSet) {
	f.IntVarP(&o.Verbosity, "v", "v", 2, "verbosity: 2 default, 3 verbose, 4 debug, 5 trace")
	f.BoolVar(&o.Devel, "zap-devel", false, "console lines, debug level, stacks from warnings on")
	f.StringVar(&o.Encoder, "zap-encoder", "json", "json or console")
	f.StringVar(&o.Level, "zap-log-level", "", "debug, info, error or panic; empty follows -v")
	f.StringVar(&o.Stacktrace, "zap-stacktrace-level", "error", "level from which on lines carry a stack: info, error or panic")
	f.StringVar(&o.TimeFormat, "zap-time-encoding", "rfc3339", "epoch, millis, nano, iso8601, rfc3339 or rfc3339nano")
}

var timeEncoders = map[string]zapcore.TimeEncoder{
	"epoch": zapcore.EpochTimeEncoder, "millis": zapcore.EpochMillisTimeEncoder, "nano": zapcore.EpochNanosTimeEncoder,
	"iso8601": zapcore.ISO8601TimeEncoder, "rfc3339": zapcore.RFC3339TimeEncoder, "rfc3339nano": zapcore.RFC3339NanoTimeEncoder,
}

// Check says what is wrong with the flags.
func (o *LogOptions) Check() error {
	if o.Encoder != "json" && o.Encoder != "console" {
		return fmt.Errorf("--zap-encoder: got %q, want json or console", o.Encoder)
	}
	if _, ok := timeEncoders[strings.ToLower(o.TimeFormat)]; !ok {
		return fmt.Errorf("--zap-time-encoding: got %q, want epoch, millis, nano, iso8601, rfc3339 or rfc3339nano", o.TimeFormat)
	}
	for _, l := range []struct{ flag, level string }{{"zap-log-level", o.Level}, {"zap-stacktrace-level", o.Stacktrace}} {
		if l.level == "" {
			continue
		}
		if _, err := zapcore.ParseLevel(l.level); err != nil {
			return fmt.Errorf("--%s: got %q, want debug, info, error or panic", l.flag, l.level)
		}
	}
	return nil
}

// New makes the logger. Lines that repeat are sampled: the first hundred of each second and text, then one in a hundred.
func (o *LogOptions) New() (*zap.Logger, error) {
	c := zap.NewProductionConfig()
	c.Encoding = o.Encoder
	c.EncoderConfig.EncodeTime = timeEncoders[strings.ToLower(o.TimeFormat)]
	c.Level = zap.NewAtomicLevelAt(o.level())
	if o.Devel {
		c.Development, c.Encoding = true, "console"
	}
	stack, err := zapcore.ParseLevel(o.Stacktrace)
	if err != nil {
		return nil, err
	}
	c.DisableStacktrace = true
	c.Sampling = nil
	return c.Build(zap.AddStacktrace(stack), zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 100, 100)
	}))
}

func (o *LogOptions) level() zapcore.Level {
	if l, err := zapcore.ParseLevel(o.Level); o.Level != "" && err == nil {
		return l
	}
	if o.Devel || o.Verbosity >= 4 {
		return zapcore.DebugLevel
	}
	return zapcore.InfoLevel
}
