// Command signalbox is well kept.
package main

func main() {}
