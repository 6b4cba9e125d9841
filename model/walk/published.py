"""Six word vectors and the weights of two examples of attention, as they were published.

The tests compare what comes out with what was published with them.  All are in float64.
Shapes: T = 6 words, C = 3 channels of a word, D = 3 channels of a query, key or value.

Source: the words are those of Raschka 2024, "Build a Large Language Model (From Scratch)", chapter
3; the matrices those of an article that follows it with D = 3, where the book has D = 2.
"""
import numpy as np

SENTENCE = "Your journey starts with one step"
# A vector for each word, a row each: (T, C).  They were made up, to be short and easy to check.
WORDS = np.array([[0.43, 0.15, 0.89],       # Your
                  [0.55, 0.87, 0.66],       # journey
                  [0.57, 0.85, 0.64],       # starts
                  [0.22, 0.58, 0.33],       # with
                  [0.77, 0.25, 0.10],       # one
                  [0.05, 0.80, 0.55]])      # step

# One causal head of three channels, or three causal heads of one channel each.  The matrices are
# stored as in `model.layers.Linear` and in PyTorch, (outputs, inputs): a row makes a channel, and
# the query of a word is word @ QUERY_WEIGHT.T.  With three heads, row h is the weight of head h.
# Shapes (D, C).
QUERY_WEIGHT = np.array([[-0.23542964, 0.01912448, -0.28674594],
                         [0.21772662, -0.49193421, 0.42322308],
                         [-0.41964141, -0.45901766, -0.36482018]])
KEY_WEIGHT = np.array([[0.26147819, -0.21332639, 0.21605217],
                       [-0.49001414, -0.35029206, -0.21198919],
                       [-0.11346072, -0.44043937, 0.37804362]])
VALUE_WEIGHT = np.array([[-0.13615717, 0.18532233, 0.40826949],
                         [0.10756382, 0.15787685, 0.55729234],
                         [-0.26039040, 0.18287641, -0.25687245]])
# They mix the outputs of the three heads, by heads @ OUT_WEIGHT.T + OUT_BIAS: (C, D) and (C,).
OUT_WEIGHT = np.array([[0.41260317, 0.46110451, -0.53230095],
                       [0.49285263, 0.27569306, 0.25159022],
                       [0.23768058, 0.47995073, -0.07623307]])
OUT_BIAS = np.array([-0.48826423, -0.16567004, -0.40661314])
