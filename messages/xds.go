package messages

import "time"

// XdsMsg is what the xds adapter is told: what proxies shall know.
//
//sumtype:decl
type XdsMsg interface{ xdsMsg() }

// EndpointsAnnounced is the whole set of endpoints as every proxy shall know it. It goes ahead of the picks of what
// it adds, and behind those of what it takes away.
//
//	From:  pool
//	To:    xds adapter
//	Reply: EndpointsAcknowledged to Pool, once every connected proxy has taken this set or a later one; at once without proxies
type EndpointsAnnounced struct {
	Number    uint64 // rises with each announcement of an incarnation of the pool, from 1
	Endpoints List[AnnouncedEndpoint]
	// when discovery had what is new in it; zero = not known, or nothing that discovery found is new
	Found time.Time
	Pool  Port[PoolMsg]
}

// AnnouncedEndpoint is one of the set.
type AnnouncedEndpoint struct {
	Address Address
	Leaving bool // not picked any more: known only to what was picked before
}

func (EndpointsAnnounced) xdsMsg() {}
