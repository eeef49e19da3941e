package messages

import "time"

// ScraperMsg is what the scraper of one endpoint receives.
//
//sumtype:decl
type ScraperMsg interface{ scraperMsg() }

// EndpointAssigned begins an incarnation of a scraper.
//
//	From:  pool
//	To:    scraper, first
//	Reply: none
type EndpointAssigned struct {
	Endpoint EndpointID
	Spec     EndpointSpec
	Pool     Sink[PoolMsg]
}

// ScrapeDue is sent by the scraper's timer.
//
//	From:  scraper, to itself
//	To:    scraper
//	Reply: none
type ScrapeDue struct {
	Generation uint32 // of the timer; an older one is void
}

// ScrapeFinished carries one metrics page, or says why there is none.
//
//	From:  the fetcher of adapters/modelserver
//	To:    scraper, exactly once for each fetch
//	Reply: none
type ScrapeFinished struct {
	Source    string        // by name; "" = the metrics page
	Number    uint32        // of the scrape that asked
	Failure   string        // why there is no page; "" = there is one
	Took      time.Duration // from the request to the page's last byte
	PageBytes int           // that the endpoint sent; 0 = there is no page, or it is of the whole pool
	Reading   Reading
	Shared    bool          // the page is of the whole pool, and was read for another scrape
	Age       time.Duration // that the page had when this scrape began
	Expires   time.Duration // after this scrape began, as the page's author said; 0 = its age decides
}

// Reading is what one page says: those attributes that are read and that it has.
type Reading struct {
	Engine  string // "vllm", "sglang", "triton-tensorrt-llm", "trtllm-serve", "llamacpp", "triton"; "" = not recognised
	Numbers List[Extracted]
	Names   List[ExtractedNames]
}

// Extracted is the value of an attribute that an extractor took from a page.
type Extracted struct {
	Attribute string
	Producer  string  // the extractor, by name; "" = the attribute is built in
	Value     float64 // any finite number, in the unit of the attribute
	Total     bool    // it counts since the server's start: its attribute is the rate, per second
}

// ExtractedNames is an attribute of names that an extractor took from a page.
type ExtractedNames struct {
	Attribute string
	Producer  string // as that of Extracted
	Names     List[string]
}

// ModelsListed carries the model list of an endpoint, or says why there is none.
//
//	From:  the fetcher of adapters/modelserver
//	To:    scraper, exactly once for each fetch
//	Reply: none
type ModelsListed struct {
	Number  uint32 // of the fetch that asked
	Failure string // why there is no list; "" = there is one
	Models  List[string]
}

// Scraping is what a configuration asks of scrapers.
type Scraping struct {
	Metrics     bool          // ask for the metrics page
	Models      string        // the source of the model list, by name; "" = do not ask for it
	Interval    time.Duration // fixed, between two metrics pages; 0 = by what a page costs its server
	ModelsEvery time.Duration // fixed, between two model lists; 0 = 30 s, less after a failure
	// labels that an endpoint must have to be asked for its metrics page, and for its model list
	Select, SelectModels Map[string, string]
	Further              List[FurtherPage]
	// what is read of pages and lists, or where, differs from the configuration before: read them soon
	Anew bool
}

// FurtherPage is a page that is asked for beside the metrics page, in turns of its own.
type FurtherPage struct {
	Source   string              // by name, never ""
	Document bool                // it is a JSON document, not a metrics page
	Interval time.Duration       // as that of Scraping
	Select   Map[string, string] // labels that an endpoint must have to be asked
}

// ScrapingReplaced says that another configuration is in force.
//
//	From:  pool
//	To:    scraper
//	Reply: none
type ScrapingReplaced struct {
	Number   uint64 // of the configuration, from 2; one that is not newer is dropped
	Scraping Scraping
}

// EndpointWithdrawn ends a scraper: its endpoint left the pool.
//
//	From:  pool
//	To:    scraper
//	Reply: none
type EndpointWithdrawn struct{}

func (EndpointAssigned) scraperMsg()  {}
func (ScrapeDue) scraperMsg()         {}
func (ScrapeFinished) scraperMsg()    {}
func (ModelsListed) scraperMsg()      {}
func (ScrapingReplaced) scraperMsg()  {}
func (EndpointWithdrawn) scraperMsg() {}
