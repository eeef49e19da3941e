// Package scraper keeps one endpoint's sample fresh: it decides when to fetch from the model server, publishes what
// came, and decides when to fetch again.
//
// A scraper owns the schedule of one endpoint, for both of its sources (metrics page and model list), and is the only
// writer of the endpoint's samples. It runs one fetch of each source at a time. Each fetch has a number, and an answer
// with another number is dropped. A failure leaves the last sample in force; readers judge it by its age.
//
// It never opens a connection or reads a page (adapters/modelserver does), and never decides whether an endpoint is
// used.
package scraper
