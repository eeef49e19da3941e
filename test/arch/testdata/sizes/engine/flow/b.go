package flow

func atDepth(list []int) {
	for _, x := range list {
		if x > 1 {
			x++
		} else if x > 0 {
			x--
		} else {
			x = 0
		}
	}
}

// literal begins anew inside.
func literal(list []int) {
	for range list {
		if f := func() {
			if list != nil {
				for range list {
				}
			}
		}; f != nil {
			f()
		}
	}
}
