// Package scraper is the life of one endpoint's samples: when to ask its model server, what came of it, when to ask
// again.
//
// A scraper owns the schedule of one endpoint, for all its sources (metrics page and model list), and is the only one
// that publishes the endpoint's samples. It asks for one page at a time: a fetch has a number, and what carries another
// number is void. A failure leaves the last sample where it is; readers judge it by its age.
//
// It never opens a connection or reads a page (adapters/modelserver does), and never decides whether an endpoint is
// used.
package scraper
