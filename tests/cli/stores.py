"""Images in OME-Zarr as other programs write them."""

import zarr


def say(group, **about):
    """Say something of a group of OME-Zarr 0.4, or of 0.5 where it has the later format."""
    if group.metadata.zarr_format == 3:
        group.attrs["ome"] = {"version": "0.5", **about}
    else:
        group.attrs.update(about | {"version": "0.4"})


def write_ome_zarr(group, array):
    """Write an image that does not lie at the origin into a group, or into a new store."""
    if isinstance(group, str):
        group = zarr.open_group(group, mode="w", zarr_format=3)
    group.create_array("0", data=array, chunks=(32, 32))
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    scale = {"type": "scale", "scale": [0.5, 0.5]}
    moves = [scale, {"type": "translation", "translation": [100.0, 200.0]}]
    datasets = [{"path": "0", "coordinateTransformations": moves}]
    say(group, multiscales=[{"version": "0.4", "axes": axes, "datasets": datasets}])
