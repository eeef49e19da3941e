// Package xds owns what Envoy is told of itself: the bootstrap files, and the resources that an aggregated discovery
// service hands out: endpoints, and on demand listener, route and clusters, all of them from one template. It never
// decides which endpoints there are, or which one serves a request.
package xds
