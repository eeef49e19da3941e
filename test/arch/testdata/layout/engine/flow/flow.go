// Package queues has another name than its folder.
package queues
