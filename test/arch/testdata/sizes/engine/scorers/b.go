package scorers
