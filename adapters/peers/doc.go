// Package peers knows the proxies that are connected: which connections each has, what it can do, and whether its
// access log comes. It shows them, logs a line when one connects or leaves, and tells the shards when entries of
// requests may never come.
//
// It owns nothing of a request. What it knows of a proxy ends with the proxy's last connection.
package peers
