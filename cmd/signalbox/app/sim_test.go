package app

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm"
)

// runSim runs the command and returns what it prints; its error comes when it has ended.
func runSim(ctx context.Context, args ...string) (out io.Reader, ended <-chan error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	c := newSim()
	c.SetArgs(append([]string{"--port=0"}, args...))
	c.SetOut(w)
	c.SilenceErrors, c.SilenceUsage = true, true
	go func() {
		err := c.ExecuteContext(ctx)
		w.Close()
		done <- err
	}()
	return r, done
}

func TestSimBeginsWithItsFaults(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := runSim(ctx, "--faults", `{"error_rate":1,"error_status":502}`)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + strings.TrimSpace(strings.TrimPrefix(line, "listening "))
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway {
		t.Errorf("a request: got status %d, want the 502 of --faults", resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestSimRefusesBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		`--faults {"error_rate":3}`:   "--faults: error_rate: got 3, want 0 to 1",
		`--faults {"error_rate":"x"}`: "--faults: error_rate: got string, want a number",
		`--faults {"page_delay":3}`:   `--faults: page_delay: got number, want a time such as "1.5s"`,
		`--faults {"page_delay":"3"}`: `--faults: "3" is no duration`,
		`--faults {"x":1}`:            `--faults: unknown field "x"; the fields are error_rate, error_status, `,
		`--faults [1]`:                "--faults: got array, want a JSON object",
		`--faults nonsense`:           "--faults: invalid character",
		"--decode-rate 0":             "--decode-rate: got 0, want more than 0",
		"--prefill-rate -1":           "--prefill-rate: got -1, want more than 0",
		"--answer-tokens 0":           "--answer-tokens: got 0, want 1 or more",
		"--max-model-len -1":          "--max-model-len: got -1, want 0 or more",
		"--count 0":                   "--count: got 0, want 1 or more",
		"--port 99999":                "--port: got 99999, want 0 to 65535",
		"--port 65535 --count 3": "--port: got 65535, want 65533 at most, for --count 3 takes as many ports " +
			"from there on",
		"--bind foo":                    `--bind: got "foo", want an IP address, without a port`,
		"--block-size 0 --max-loras -1": "--max-loras: got -1, want 0 or more\n--block-size: got 0, want 1 or more",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // for one that is not refused
		_, ended := runSim(ctx, strings.Fields(args)...)
		err := <-ended
		cancel()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("sim %s: got %v, want %q", args, err, want)
		}
	}
}

func TestHelpNamesEveryFault(t *testing.T) {
	fields := reflect.TypeFor[vllm.Faults]()
	for i := range fields.NumField() {
		if name := fields.Field(i).Tag.Get("json"); !strings.Contains(faultHelp, name) {
			t.Errorf("the help of sim does not name %s", name)
		}
	}
}

func TestProfileGivesWayToFlags(t *testing.T) {
	o := &simOptions{profile: "vllm-cpu-tiny"}
	flags := pflag.NewFlagSet("sim", pflag.ContinueOnError)
	flags.IntVar(&o.server.KVBlocks, "num-gpu-blocks", 4096, "")
	flags.IntVar(&o.server.BlockTokens, "block-size", 16, "")
	flags.StringSliceVar(&o.server.Adapters, "adapters", nil, "")
	if err := flags.Parse([]string{"--num-gpu-blocks=7", "--adapters=a"}); err != nil {
		t.Fatal(err)
	}
	if err := o.applyProfile(flags); err != nil {
		t.Fatal(err)
	}
	if c := o.server; c.KVBlocks != 7 || c.BlockTokens != 32 || len(c.Adapters) != 1 {
		t.Errorf("%d blocks of %d tokens, adapters %q; want the 7 of the flag, the 32 of the profile, one adapter",
			c.KVBlocks, c.BlockTokens, c.Adapters)
	}
	_, ended := runSim(t.Context(), "--profile=h100")
	if err := <-ended; err == nil || err.Error() != `--profile: got "h100", want one of vllm-cpu-tiny` {
		t.Errorf("an unknown profile: got %v, want an error", err)
	}
}
