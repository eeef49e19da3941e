package cycle

func race() { go race() }
