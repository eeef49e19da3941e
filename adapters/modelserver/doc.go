// Package modelserver reads what model servers say about themselves:
// the metrics page of each engine and the model list.
//
// It owns the names of each engine's series, the scanner that finds them in a page, and the HTTP client that fetches.
// It never decides when to fetch (the scraper actor does), keeps nothing of an endpoint between two fetches but idle
// connections, and judges no number: it reports what the page says.
package modelserver
