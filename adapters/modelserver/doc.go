// Package modelserver reads what model servers report about themselves: their metrics page and their list of models.
//
// It owns the names of each engine's series, the scanner that finds them in a page, and the HTTP client that fetches.
// It never decides when to fetch, which is up to the scraper actor. It keeps nothing of an endpoint between two fetches
// but idle connections, and judges no number: it reports what the page says.
package modelserver
