// Package pool has too many files.
package pool

func deep(list []int, c chan int) {
	for range list {
		switch {
		case len(list) > 1:
			if list[0] > 0 {
				_ = 1
			}
		}
	}
}

func deepElse(list []int) {
	if list == nil {
	} else {
		select {
		default:
			for range list {
			}
		}
	}
}

func deepInside(list []int) {
	_ = func() {
		for range list {
			for range list {
				for range list {
				}
			}
		}
	}
}
