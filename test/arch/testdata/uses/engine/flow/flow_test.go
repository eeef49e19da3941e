package flow

func race() {
	go race() //nolint:forbidigo // tests prove claims about concurrency
}
