package records

import "github.com/signalbox-epp/signalbox/messages"

// MeetsAny reports whether every record meets a filter, because nothing in it is set.
func MeetsAny(f *messages.RecordFilter) bool {
	return f.Model == "" && f.Status == (messages.StatusRange{}) && f.Reasons.Len() == 0 && f.Ended.IsZero() &&
		anywhere(f)
}

// Meets reports whether a record meets a filter.
func Meets(r *messages.Record, f *messages.RecordFilter) bool {
	switch {
	case f.Model != "" && r.Model != f.Model:
		return false
	case f.Status != (messages.StatusRange{}) && (r.Status < f.Status.From || r.Status > f.Status.To):
		return false
	case f.Reasons.Len() > 0 && !holds(f.Reasons, r.Reason):
		return false
	case !f.Ended.IsZero() && (r.Running || r.ArrivedAt.Add(r.Ended).Before(f.Ended)):
		return false
	}
	return anywhere(f) || servedAt(r, f)
}

// anywhere reports whether a filter takes requests of all endpoints.
func anywhere(f *messages.RecordFilter) bool { return f.Endpoints.Len() == 0 && f.Elsewhere == "" }

// servedAt reports whether a request was served where the filter says. If it is not known what served it, the endpoints
// count that were picked for it.
func servedAt(r *messages.Record, f *messages.RecordFilter) bool {
	switch {
	case r.Served.Generation != 0:
		return holds(f.Endpoints, r.Served)
	case r.Elsewhere != "":
		return r.Elsewhere == f.Elsewhere
	}
	for _, run := range r.Decision.Profiles.All() {
		if run.Ranked.Len() == 0 || run.Shadow {
			continue
		}
		pick := int(run.Ranked.At(0))
		if pick < r.Decision.Endpoints.Len() && holds(f.Endpoints, r.Decision.Endpoints.At(pick)) {
			return true
		}
	}
	return false
}

func holds[T comparable](l messages.List[T], wanted T) bool {
	for _, item := range l.All() {
		if item == wanted {
			return true
		}
	}
	return false
}
