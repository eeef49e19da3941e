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
	PageBytes int           // 0 = there is no page
	Reading   Reading
}

// Reading is what one metrics page says. A field that the page does not have is Unknown (a negative number), or empty.
type Reading struct {
	Engine       string  // "vllm", "sglang", "triton-tensorrt-llm", "trtllm-serve", "llamacpp"; "" = not recognised
	Waiting      float64 // requests
	Running      float64 // requests
	KVUsed       float64 // 0 to 1
	BlockTokens  float64 // tokens in one KV block
	Blocks       float64 // KV blocks in all
	StartedAt    float64 // unix seconds, of the server's process
	MaxAdapters  float64 // LoRA slots
	ActiveLoRAs  List[string]
	WaitingLoRAs List[string]
	Extracted    List[Extracted] // attributes that a configuration names, without those that the page does not have
}

// Extracted is the value of an attribute that a configuration takes from a page.
type Extracted struct {
	Attribute string
	Producer  string  // the extractor, by name
	Value     float64 // any finite number, in the unit of the metric
	Total     bool    // it counts since the server's start: its attribute is the rate, per second
}

// Unknown stands for a number that a page does not have.
const Unknown = -1

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
	Models      bool          // ask for the model list
	Interval    time.Duration // fixed, between two metrics pages; 0 = by what a page costs its server
	ModelsEvery time.Duration // between two model lists; 0 = the default
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
