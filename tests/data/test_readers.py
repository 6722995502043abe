import os

import h5py
import numpy as np
import pytest
from PIL import Image

from polyclinic.data.errors import UnreadableError
from polyclinic.data.readers import datasets, read_image, read_mask
from tests.data.folders import write_picture

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (20, 30), dtype=np.uint8)
MASK = RNG.integers(0, 3, (20, 30), dtype=np.uint8)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".tiff", ".npy", ".h5"])
def test_lossless_files_give_exactly_what_was_saved(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    save(path, RGB, "image")

    assert np.array_equal(read_image(path, 3), RGB.transpose(2, 0, 1))
    assert read_image(path, 3).dtype == np.uint8


@pytest.mark.parametrize("suffix", [".png", ".tif", ".npy", ".hdf5"])
def test_masks_give_exactly_what_was_saved(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    save(path, MASK, "mask")

    assert np.array_equal(read_mask(path), MASK)


def test_jpeg_is_read_as_pil_reads_it(tmp_path):
    path = write_picture(tmp_path / "a.jpg", RGB)

    assert np.array_equal(read_image(path, 3), np.asarray(Image.open(path)).transpose(2, 0, 1))


def test_capital_suffixes_are_known(tmp_path):
    assert read_image(write_picture(tmp_path / "A.PNG", GREY), 1).shape == (1, 20, 30)


def test_grey_becomes_three_equal_channels(tmp_path):
    image = read_image(write_picture(tmp_path / "a.png", GREY), 3)

    assert np.array_equal(image, np.stack([GREY] * 3))


def test_colour_becomes_grey_as_pil_does_it(tmp_path):
    path = write_picture(tmp_path / "a.png", RGB)
    theirs = np.asarray(Image.open(path).convert("L")).astype(int)

    assert abs(read_image(path, 1)[0].astype(int) - theirs).max() <= 1


def test_equal_channels_become_grey_exactly(tmp_path):
    path = write_picture(tmp_path / "a.png", np.repeat(GREY[:, :, None], 3, axis=2))

    assert np.array_equal(read_image(path, 1)[0], GREY)


def test_transparency_is_dropped(tmp_path):
    alpha = np.full((20, 30, 1), 90, dtype=np.uint8)
    path = write_picture(tmp_path / "a.png", np.concatenate([RGB, alpha], axis=2))

    assert np.array_equal(read_image(path, 3), RGB.transpose(2, 0, 1))


def test_16_bit_images_become_float32_without_loss(tmp_path):
    deep = RNG.integers(0, 65536, (20, 30), dtype=np.uint16)
    image = read_image(write_picture(tmp_path / "a.png", deep), 1)

    assert image.dtype == np.float32
    assert np.array_equal(image[0], deep)


def test_channels_may_come_first_in_arrays(tmp_path):
    np.save(tmp_path / "a.npy", RGB.transpose(2, 0, 1))

    assert np.array_equal(read_image(tmp_path / "a.npy", 3), RGB.transpose(2, 0, 1))


def test_colour_floats_become_grey_floats(tmp_path):
    np.save(tmp_path / "a.npy", RGB / 255)

    image = read_image(tmp_path / "a.npy", 1)
    assert image.dtype == np.float32
    assert np.allclose(image[0], RGB / 255 @ [0.299, 0.587, 0.114])


def test_palette_images_get_their_colours_and_palette_masks_their_numbers(tmp_path):
    picture = Image.frombytes("P", (30, 20), MASK.tobytes())
    picture.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    picture.save(tmp_path / "a.png")

    assert np.array_equal(read_mask(tmp_path / "a.png"), MASK)
    assert np.array_equal(read_image(tmp_path / "a.png", 3)[0], MASK * 30 + 10)


def test_black_and_white_pictures_are_0_and_1(tmp_path):
    path = write_picture(tmp_path / "a.png", MASK > 0)

    assert np.array_equal(read_mask(path), MASK > 0)
    assert read_image(path, 1).dtype == np.uint8


def test_other_colour_models_become_rgb(tmp_path):
    Image.fromarray(RGB).convert("CMYK").save(tmp_path / "a.tif")

    assert read_image(tmp_path / "a.tif", 3).shape == (3, 20, 30)


def test_masks_in_floats_and_in_three_equal_channels_are_read(tmp_path):
    np.save(tmp_path / "a.npy", MASK.astype(np.float64))
    path = write_picture(tmp_path / "b.png", np.repeat(MASK[:, :, None], 3, axis=2))

    assert np.array_equal(read_mask(tmp_path / "a.npy"), MASK)
    assert np.array_equal(read_mask(path), MASK)


def test_an_hdf5_file_says_what_it_holds(tmp_path):
    save(tmp_path / "a.h5", MASK, "scribble")
    (tmp_path / "broken.h5").write_text("no")

    assert datasets(tmp_path / "a.h5") == ("scribble",)
    assert datasets(tmp_path / "broken.h5") == ()
    assert datasets(tmp_path / "a.png") == ()
    assert np.array_equal(read_mask(tmp_path / "a.h5", ("point", "scribble")), MASK)
    with pytest.raises(UnreadableError, match="no dataset mask, only scribble"):
        read_mask(tmp_path / "a.h5")


def test_nan_pixels_are_refused(tmp_path):
    pixels = GREY.astype(np.float32)
    pixels[3, 4:6] = np.nan, np.inf
    np.save(tmp_path / "a.npy", pixels)

    with pytest.raises(UnreadableError, match="2 of its numbers are NaN or infinite"):
        read_image(tmp_path / "a.npy", 1)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.npy", "a.h5"])
def test_broken_files_are_unreadable(tmp_path, name):
    (tmp_path / name).write_bytes(b"this is not an image")

    with pytest.raises(UnreadableError, match="cannot be read"):
        read_image(tmp_path / name, 1)


def test_half_a_file_is_unreadable(tmp_path):
    path = write_picture(tmp_path / "a.png", RGB)
    path.write_bytes(path.read_bytes()[:600])

    with pytest.raises(UnreadableError, match="cannot be read"):
        read_image(path, 3)


def test_unknown_types_are_named(tmp_path):
    with pytest.raises(UnreadableError, match=r"known are \.png, \.jpg"):
        read_image(tmp_path / "a.bmp", 1)


def test_arrays_that_are_no_image_are_refused(tmp_path):
    np.save(tmp_path / "volume.npy", np.zeros((10, 20, 30)))
    np.save(tmp_path / "empty.npy", np.zeros((0, 20)))
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    with (tmp_path / "archive.npy").open("wb") as file:
        np.savez(file, a=GREY)

    for name, words in {
        "volume": r"shape \(10, 20, 30\)",
        "empty": "holds no image",
        "words": "holds no image",
        "archive": "archive of arrays",
    }.items():
        with pytest.raises(UnreadableError, match=words):
            read_image(tmp_path / f"{name}.npy", 1)


def test_several_frames_are_refused(tmp_path):
    frames = [Image.fromarray(GREY), Image.fromarray(GREY)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])

    with pytest.raises(UnreadableError, match="several frames"):
        read_image(tmp_path / "a.tif", 1)


def test_turned_photographs_are_refused(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(RGB).save(tmp_path / "a.jpg", exif=exif)

    with pytest.raises(UnreadableError, match="save it upright"):
        read_image(tmp_path / "a.jpg", 3)


def test_fractional_and_negative_masks_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", MASK + 0.5)
    np.save(tmp_path / "b.npy", MASK.astype(int) - 1)

    with pytest.raises(UnreadableError, match=r"a mask has whole numbers"):
        read_mask(tmp_path / "a.npy")
    with pytest.raises(UnreadableError, match=r"value -1"):
        read_mask(tmp_path / "b.npy")


def save(path, pixels, key):
    if path.suffix == ".npy":
        np.save(path, pixels)
    elif path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            file[key] = pixels
    else:
        write_picture(path, pixels)


@pytest.mark.parametrize("channels", [2, 4, 5, 16])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("suffix", [".npy", ".h5", ".tif"])
def test_images_of_many_channels_are_read_channels_first_or_last(tmp_path, channels, first, suffix):
    image = np.random.default_rng(0).integers(0, 256, (channels, 20, 24), dtype=np.uint8)
    stored = image if first else image.transpose(1, 2, 0)
    path = tmp_path / f"image{suffix}"
    if suffix == ".npy":
        np.save(path, stored)
    elif suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["image"] = stored
    else:  # a page for each channel
        frames = [Image.fromarray(plane) for plane in image]
        frames[0].save(path, save_all=True, append_images=frames[1:])

    assert np.array_equal(read_image(path, channels), image)


def test_another_number_of_channels_than_the_task_has_is_refused(tmp_path):
    np.save(tmp_path / "image.npy", np.zeros((20, 20, 5), np.float32))
    with pytest.raises(UnreadableError, match=r"has shape \(20, 20, 5\); .* of 3 channels"):
        read_image(tmp_path / "image.npy", 3)
    np.save(tmp_path / "image.npy", np.zeros((20, 20, 3), np.float32))
    with pytest.raises(UnreadableError, match="has 3 channels, the task 5"):
        read_image(tmp_path / "image.npy", 5)


def test_a_picture_of_a_task_with_four_channels_has_no_transparency_for_one(tmp_path):
    Image.new("RGBA", (8, 8)).save(tmp_path / "image.png")
    with pytest.raises(UnreadableError, match="has 3 channels, the task 4"):
        read_image(tmp_path / "image.png", 4)


def test_a_drawing_program_named_png_is_no_picture(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    )

    with pytest.raises(UnreadableError, match="cannot be read: cannot identify image file"):
        read_image(path, 1)


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.npy").symlink_to("/dev/zero")

    for name in ("a.png", "b.npy"):
        with pytest.raises(UnreadableError, match="no regular file"):
            read_image(tmp_path / name, 1)


def test_what_says_it_is_huge_is_refused_before_it_is_read(tmp_path):
    header = np.lib.format.magic(1, 0)
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|u1", "fortran_order": False, "shape": (10**6, 10**6)}
        )
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("image", (10**6, 10**6), "u1", chunks=(100, 100))
    Image.new("1", (10_000, 8_000)).save(tmp_path / "a.png")

    assert (tmp_path / "a.npy").read_bytes().startswith(header)
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_image(tmp_path / "a.npy", 1)
    for name in ("a.h5", "a.png"):
        with pytest.raises(UnreadableError, match="pixels; at most"):
            read_image(tmp_path / name, 1)


def test_hdf5_files_give_only_what_is_in_them(tmp_path):
    (tmp_path / "secret").write_bytes(GREY.tobytes())
    save(tmp_path / "other.h5", GREY, "image")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["soft"] = h5py.SoftLink("/image")
        file["outside"] = h5py.ExternalLink("other.h5", "/image")
        file.create_dataset(
            "external", GREY.shape, "u1", external=[(tmp_path / "secret", 0, GREY.size)]
        )
        layout = h5py.VirtualLayout(GREY.shape, "u1")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "image", GREY.shape)
        file.create_virtual_dataset("virtual", layout)
        file["image"] = GREY
        file.create_group("group")

    for key, words in {
        "soft": "has a link",
        "outside": "has a link",
        "external": "in other files",
        "virtual": "in other files",
        "group": "has a group",
    }.items():
        with pytest.raises(UnreadableError, match=words):
            read_mask(tmp_path / "a.h5", (key,))


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif"])
def test_masks_that_lost_their_classes_are_refused(tmp_path, name):
    how = {"format": "TIFF", "compression": "jpeg"} if name == "a.tif" else {"format": "JPEG"}
    Image.fromarray(MASK).save(tmp_path / name, **how)

    with pytest.raises(UnreadableError, match="save masks as PNG"):
        read_mask(tmp_path / name)
    assert read_image(tmp_path / name, 1).shape == (1, 20, 30)


def test_lossless_tiff_masks_are_read_whatever_their_compression(tmp_path):
    for compression in ("tiff_lzw", "tiff_deflate", "packbits"):
        Image.fromarray(MASK).save(tmp_path / "a.tif", compression=compression)
        assert np.array_equal(read_mask(tmp_path / "a.tif"), MASK)
