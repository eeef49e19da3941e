// Command signalbox is an Endpoint Picker for LLM inference: Envoy asks it, over ext_proc, which model server serves a
// request. It never does anything itself: package app is the command.
package main

import "github.com/signalbox-epp/signalbox/cmd/signalbox/app"

func main() { app.Main() }
