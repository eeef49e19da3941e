package sim_test

import "github.com/signalbox-epp/signalbox/messages"

// coin decides the checks of the outlier actor.
type coin struct{ w *world }

func (c coin) Check(id messages.EndpointID, _ messages.Address, port messages.Port[messages.OutlierMsg]) bool {
	port.Post(messages.EndpointChecked{Endpoint: id, Connected: c.w.chance(0.5)})
	return true
}

// proxies are told of endpoints, and most often take what they are told.
type proxies struct{ w *world }

func (p proxies) Tell(m messages.XdsMsg) bool {
	p.w.announced++
	told := m.(messages.EndpointsAnnounced)
	if p.w.chance(.8) {
		told.Pool.Post(messages.EndpointsAcknowledged{Number: told.Number})
	}
	return true
}
