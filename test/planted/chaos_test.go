package planted

import "testing"

// chaosFaults stand where they could have been made.
var chaosFaults = map[string]fault{
	"load is never given back": {
		file: "actors/cycle/wait.go", was: "c.unloadStages()\n\tc.letGo()\n", is: "c.unloadStages()\n",
		complaint: "load is left on",
	},
	"a prompt is never given back": {
		file: "actors/cycle/holdings.go", was: "\tif c.held.prompt {",
		is:        "\tif c.held.prompt && c.rec.Reason != messages.ClientGone {",
		complaint: "signalbox_prefix_placed_prompts is 0",
	},
	"bodies of clients that left are held": {
		file: "adapters/extproc/stream.go", was: "\tst.in.Release()\n\tst.request.body.release()\n",
		is:        "\tst.in.Release()\n",
		complaint: "bytes of bodies are held",
	},
	"a cycle that falls answers again": {
		file: "actors/cycle/cycle.go", was: "if c.phase == queued {\n\t\tc.rec",
		is:        "if c.phase != created && c.phase != done {\n\t\tc.rec",
		complaint: "its cycle told its stream",
	},
	"headers are answered twice": {
		file: "adapters/extproc/pick.go", was: "\tbody.release()\n\tif last == trailersCame",
		is: "\tbody.release()\n\tif st.id%100 == 0 {\n\t\t_ = st.send(func(r *wire.Response) { " +
			"r.SetEmptyHeaders(wire.RequestDirection) })\n\t}\n\tif last == trailersCame",
		complaint: "duplicate-headers",
	},
	"a goroutine stays": {
		file: "adapters/extproc/request.go", was: "func() { st.onBodyTimeout(late) }",
		is:        "func() { st.onBodyTimeout(late); select {} }",
		complaint: "goroutines, ",
	},
	"the body's timer stays": {
		file: "adapters/extproc/body.go", was: "\tb.stopTimer()\n\tb.buffer.Release()", is: "\tb.buffer.Release()",
		complaint: "are still referred to",
	},
	"a loop remembers its last request": {
		file: "engine/schedule/run.go", was: "\tr.forget()\n", is: "",
		complaint: "are still referred to",
	},
	"requests run under the newest configuration": {
		file: "configuration.go", was: "c.roles[at], messages", is: "c.picker.InForce().roles[at], messages",
		complaint: "ran profile",
	},
	"a stage is load for ever": {
		file: "actors/cycle/wait.go", was: "c.unhold()\n\tc.unloadStages()\n", is: "c.unhold()\n",
		complaint: "load is left on",
	},
	"a question is answered twice": {
		file: "actors/recorder/recorder.go", was: "\tq.asked.Admin.Tell(messages.RecordsAnswered{\n\t\tRecords:",
		is: "\tq.asked.Admin.Tell(messages.RecordsAnswered{Partial: true})\n" +
			"\tq.asked.Admin.Tell(messages.RecordsAnswered{Records:",
		complaint: "2 answers",
	},
	"the recorder is given one loop of two": {
		file: "loops.go", was: "for i := range p.loops {\n\t\tall = append",
		is:        "for i := range p.loops[:1] {\n\t\tall = append",
		complaint: "of 1 loops",
	},
	"a response comes back as other bytes": {
		file: "adapters/extproc/response.go", was: "\t\te.StartRequest(&st.in)",
		is: "\t\tvar b wire.Body\n\t\tb.Append(&st.in)\n\t\tclear(b.Bytes())\n" +
			"\t\te.StartBody(wire.ResponseDirection, &b, st.in.EndOfStream)",
		complaint: "response direction: after",
	},
}

var chaosGame = game{test: "TestChaos", command: "go test ./test/chaos -seed 3 -requests 1500"}

func TestChaosFindsFaultsInTheSource(t *testing.T) { chaosGame.finds(t, chaosFaults) }
