// Package xds owns the configuration of Envoy: the bootstrap files, and the resources that an aggregated discovery
// service hands out. Those are endpoints and, if asked for, the listener, the route and the clusters. All come from one
// template. The package never decides which endpoints there are, or which one serves a request.
package xds
