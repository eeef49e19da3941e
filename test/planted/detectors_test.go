package planted

import "testing"

// detectors are faults in the saturation detectors, and in when they are asked.
var detectors = map[string]contract{
	"a proxy that says that it has an access log has to show it": {fault{
		file: "adapters/extproc/stream.go", was: "state == messages.LogAwaited && announcesLog(",
		is: "false && announcesLog(",
	}, "adapters/extproc", "TestAnnouncedLog"},
	"one picker answers for what all pickers' requests wait": {fault{
		file: "engine/endpoints/places.go", was: "(p.Waiting-allowed)*p.Share", is: "(p.Waiting-allowed)",
	}, "engine/endpoints", "TestPlacesBound"},
	"places begin anew with each page": {fault{
		file: "actors/scraper/scraper.go", was: "before = last.Places", is: "before, _ = endpoints.Places{}, last",
	}, "actors/scraper", "TestPlacesGoOn"},
	"a server that says nothing has room": {fault{
		file: "engine/detectors/utilization.go", was: "return !(math.IsNaN(queue) && math.IsNaN(cache)) && ",
		is: "return ",
	}, "engine/detectors", "TestUtilization"},
	"an old answer says that a server has room": {fault{
		file: "engine/detectors/utilization.go", was: " && !in.Outdated(d.queue, i, d.MetricsStalenessThreshold)",
		is: "",
	}, "engine/detectors", "TestUtilization"},
	"a server counts as full before its first answer": {fault{
		file: "engine/detectors/utilization.go", was: "if in.Awaited(d.queue, i) || ", is: "if ",
	}, "engine/detectors", "TestUtilization"},
	"one full server saturates the pool": {fault{
		file: "engine/detectors/utilization.go", was: "return sum / float64(max(n, 1))", is: "return sum",
	}, "engine/detectors", "TestUtilization"},
	"the KV cache fills no server": {fault{
		file: "engine/detectors/utilization.go", was: "c > full {", is: "c < full {",
	}, "engine/detectors", "TestUtilization"},
	"a server at its threshold has room": {fault{
		file: "engine/endpoints/places.go", was: "if p.Waiting >= allowed {", is: "if p.Waiting > allowed {",
	}, "engine/detectors", "TestUtilization"},
	"headroom moves saturation": {fault{
		file: "engine/detectors/utilization.go", was: "q := queues.At(i) / float64(d.QueueDepthThreshold)",
		is: "q := queues.At(i) / float64(d.QueueDepthThreshold) / (1 + d.Headroom)",
	}, "engine/detectors", "TestUtilization"},
	"no server is left when all are full": {fault{
		file: "engine/detectors/utilization.go", was: "slices.Contains(keep, true)",
		is: "true || slices.Contains(keep, true)",
	}, "engine/detectors", "TestUtilization"},
	"saturation is that of one server": {fault{
		file: "engine/detectors/concurrency.go", was: "return shares / float64(servers)", is: "return shares",
	}, "engine/detectors", "TestConcurrency"},
	"tokens count as requests": {fault{
		file: "engine/detectors/concurrency.go", was: "in.Numbers(d.tokens).At(i)/",
		is: "in.Numbers(d.requests).At(i)/",
	}, "engine/detectors", "TestConcurrency"},
	"an ejected server fills the pool": {fault{
		file: "engine/detectors/detectors.go", was: "return c.all || !c.in.Ejected(i)", is: "return true",
	}, "engine/detectors", "TestSaturationIsOfServersThatGetRequests"},
	"a server at its limit passes": {fault{
		file: "engine/detectors/concurrency.go", was: "< float64(room.Requests)", is: "<= float64(room.Requests)",
	}, "engine/detectors", "TestConcurrency"},
	"hybrid goes by tokens alone": {fault{
		file: "engine/detectors/concurrency.go", was: "share = max(share, ", is: "share = max(0, ",
	}, "engine/detectors", "TestConcurrency"},
	"the detector that finds the pool emptiest counts": {fault{
		file: "engine/detectors/max_saturation.go", was: "most = max(most, p.Detector.Saturation(in))",
		is: "most = min(most, p.Detector.Saturation(in))",
	}, "engine/detectors", "TestMaxSaturation"},
	"room by one detector is enough": {fault{
		file: "engine/detectors/max_saturation.go", was: "keep[j] = keep[j] && (room[j]", is: "keep[j] = (room[j]",
	}, "engine/detectors", "TestMaxSaturation"},
	"a detector of a stage counts for all": {fault{
		file: "engine/detectors/max_saturation.go", was: "|| !p.counts(in.Candidates().At(j)))",
		is: "|| p == nil)",
	}, "engine/detectors", "TestMaxSaturation"},
	"parts of a detector stay filters": {fault{
		file: "engine/config/flowcontrol.go", was: "append(x.parts, x)", is: "append(x.parts[:0:0], x)",
	}, "engine/config", "TestLoadDetectorOfOthers"},
	"a window hides the other bounds": {fault{
		file: "engine/endpoints/places.go", was: ".and(of)", is: "",
	}, "engine/endpoints", "TestTakeKeepsToWindow"},
	"a saturated pool refuses requests of every priority": {fault{
		file: "engine/schedule/points.go", was: "&& s.course.request.Priority < 0", is: "",
	}, "engine/schedule", "Test"},
	"a pool that is full to the brim has room": {fault{
		file: "engine/schedule/points.go", was: "at.plugin.Saturation(&r.in) >= 1",
		is: "at.plugin.Saturation(&r.in) > 1",
	}, "engine/schedule", "Test"},
}

func TestDetectorsFindFaultsInTheSource(t *testing.T) { findAll(t, detectors) }
