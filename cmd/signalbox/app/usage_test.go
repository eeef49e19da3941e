package app

import (
	"io"
	"strings"
	"testing"
)

func TestCommandLinesThatAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"explian x":        `unknown command "signalbox explian", did you mean explain?; see signalbox --help`,
		"nonsense":         `unknown command "signalbox nonsense"; see signalbox --help`,
		"help explian":     `unknown command "signalbox explian", did you mean explain?; see signalbox --help`,
		"help config chek": `unknown command "signalbox config chek", did you mean check?; see signalbox config --help`,
		"config chek x":    `unknown command "signalbox config chek", did you mean check?; see signalbox config --help`,
		"endpoints.yaml":   `unknown command "endpoints.yaml"; endpoints are named with --endpoints endpoints.yaml, a configuration with --config-file`,
		"sim three":        `signalbox sim takes no arguments: got "three"; see signalbox sim --help`,
		"explain": "signalbox explain: got 0 arguments, want one: the ID, which is the " +
			"x-signalbox-request-id of an answer; --last takes the newest request",
		"config check": "signalbox config check: got no arguments, want one or more: the FILEs, or - " +
			"for standard input",
		"--endpoint x": "unknown flag: --endpoint, did you mean --endpoint-selector or --endpoint-target-ports or " +
			"--endpoints?; see signalbox --help",
		"sim --prot 1": "unknown flag: --prot, did you mean --port?; see signalbox sim --help",
		"sim --port":   "flag needs an argument: --port; see signalbox sim --help",
		"serve --grpc-max-send-msg-size 9": "--grpc-max-send-msg-size: a flag of the reference EPP that is not " +
			"supported yet; leave it out: what is sent is never longer than what came",
		"envoy-config --enable-grpc-stream-metrics": "--enable-grpc-stream-metrics: a flag of the reference EPP that " +
			"is not supported yet; leave it out: the metrics of streams are always there",
		"--refresh-prometheus-metrics-interval 9s": "--refresh-prometheus-metrics-interval: a flag of the reference " +
			"EPP that is not supported yet; leave it out: the gauges of the pool are computed at each scrape",
		"plugins queue-score": `no plugin type "queue-score", did you mean queue-scorer?; signalbox plugins lists them`,
		"plugins 5":           `no plugin type "5"; signalbox plugins lists them`,
		"config": "signalbox config: got no command, want one of: check convert diff schema show; see signalbox " +
			"config --help",
		"completion": "signalbox completion: got no command, want one of: bash fish powershell zsh; see " +
			"signalbox completion --help",
		"completion foo":   `unknown command "signalbox completion foo"; see signalbox completion --help`,
		"completion zhs":   `unknown command "signalbox completion zhs", did you mean zsh?; see signalbox completion --help`,
		"completion zsh x": `signalbox completion zsh takes no arguments: got "x"; see signalbox completion zsh --help`,
		"--trcing":         "unknown flag: --trcing, did you mean --tracing?; see signalbox --help",
		"--grpc-max-send-msg-siz": "unknown flag: --grpc-max-send-msg-siz; --grpc-max-send-msg-size of the " +
			"reference EPP is not supported yet",
		"sim --tracing":           "unknown flag: --tracing; see signalbox sim --help",
		"--grpc-port many":        `--grpc-port: got "many", want a whole number`,
		"--drain-delay 3":         `--drain-delay: got "3", want a duration such as 1.5s or 30m`,
		"--secure-serving=maybe":  `--secure-serving: got "maybe", want true or false`,
		"sim --decode-rate quick": `--decode-rate: got "quick", want a number`,
	} {
		c := newRoot()
		c.SetArgs(strings.Fields(args))
		c.SetOut(io.Discard)
		if err := c.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("signalbox %s:\n got %v\nwant %s", args, err, want)
		}
	}
}

func TestHelpOfEachCommandIsHad(t *testing.T) {
	for args, want := range map[string]string{
		"help": "This program:", "help explain": "explain ID", "help config check": "config check FILE...",
		"config --help": "config COMMAND", "completion --help": "completion COMMAND", "sim --help": "--faults",
	} {
		var out strings.Builder
		c := newRoot()
		c.SetArgs(strings.Fields(args))
		c.SetOut(&out)
		if err := c.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("signalbox %s: %v, %q, want %q in it", args, err, out.String(), want)
		}
	}
}
