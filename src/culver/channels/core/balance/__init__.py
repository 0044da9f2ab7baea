"""The balancer's mind: what servers bear, where channels go, and how a move is carried out."""
