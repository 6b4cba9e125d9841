"""The stations, in the order of the walk."""
from model.walk.stations.forms import columns, crossed, one_by_one
from model.walk.stations.in_the_model import block, distances, order
from model.walk.stations.many_heads import heads, ranks
from model.walk.stations.one_head import alike, dropping, masking, roles, scaling

STATIONS = [alike, roles, scaling, masking, dropping, heads, ranks, columns, one_by_one, crossed,
            order, distances, block]
