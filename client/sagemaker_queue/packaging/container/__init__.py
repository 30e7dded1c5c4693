"""What runs inside the training container of ``smq submit``; it is uploaded with the code and imported by nobody."""
