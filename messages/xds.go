package messages

import "time"

// XdsMsg is what the xds adapter receives: what it is to tell the proxies.
//
//sumtype:decl
type XdsMsg interface{ xdsMsg() }

// EndpointsAnnounced is the whole set of endpoints that every proxy is to know. It comes before the first pick of an
// endpoint that it adds, and after the last pick of one that it removes. Without proxies the reply comes at once.
//
//	From:  pool
//	To:    xds adapter
//	Reply: EndpointsAcknowledged to Pool, once every connected proxy has taken this set or a later one
type EndpointsAnnounced struct {
	Number    uint64 // rises with each announcement of an incarnation of the pool, from 1
	Endpoints List[AnnouncedEndpoint]
	// Found is when discovery had what is new in the set; zero = unknown, or discovery found nothing new.
	Found time.Time
	Pool  Port[PoolMsg]
}

// AnnouncedEndpoint is one endpoint of an announced set.
type AnnouncedEndpoint struct {
	Address Address
	Leaving bool // no longer picked: it stays only for requests whose pick was made before
}

func (EndpointsAnnounced) xdsMsg() {}
