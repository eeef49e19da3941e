package app

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// shellName and sleepName are the names under which the image has this binary beside its own. There is no shell in it,
// and the hooks of charts that were written for another image pause by one: /bin/sh -c "sleep 10".
const shellName, sleepName = "sh", "sleep"

// pause returns how long the process is to sleep, if it was called under one of these names to do so; ok is false if
// it was called under one of them for anything else.
func pause(args []string) (length time.Duration, called, ok bool) {
	var words []string
	switch filepath.Base(args[0]) {
	default:
		return 0, false, false
	case sleepName:
		words = args[1:]
	case shellName:
		if len(args) == 3 && args[1] == "-c" {
			script, isSleep := strings.CutPrefix(strings.Join(strings.Fields(args[2]), " "), sleepName+" ")
			if isSleep {
				words = []string{script}
			}
		}
	}
	if len(words) != 1 {
		return 0, true, false
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(words[0], "s"), 64)
	const most = 1e6 // longer than any pod takes to end
	if err != nil || !(seconds >= 0 && seconds <= most) {
		return 0, true, false
	}
	return time.Duration(seconds * float64(time.Second)), true, true
}

// sleepIfCalled sleeps if the process was called to do nothing else, and reports whether it was, and its exit status.
func sleepIfCalled(args []string) (status int, called bool) {
	length, called, ok := pause(args)
	switch {
	case !called:
		return 0, false
	case !ok:
		lastWords(os.Stderr, args[0]+": this image has no shell: want sleep and a number of seconds\n")
		return noCommand, true
	}
	<-time.After(length)
	return 0, true
}

// noCommand is what a shell exits with that does not find a command.
const noCommand = 127
