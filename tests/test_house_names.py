from pathlib import Path

from mtn_edge.names import distinct_names


def names(*paths: str, taken: tuple[str, ...] = ()) -> list[str]:
    return distinct_names([Path(path) for path in paths], taken)


def test_folders_get_the_shortest_names_that_tell_them_apart() -> None:
    assert names("/x/tiny", "/y/small") == ["tiny", "small"]
    assert names("/x/bundle", "/y/bundle") == ["x/bundle", "y/bundle"]
    assert names("/x/a/bundle", "/x/b/bundle", "/y/a/bundle") == ["x/a/bundle", "b/bundle", "y/a/bundle"]


def test_a_taken_name_grows_and_the_same_folder_twice_is_counted() -> None:
    assert names("/a/mpc", taken=("mpc",)) == ["a/mpc"]
    assert names("/a/b", "/a/b", "/a/b") == ["b", "b #2", "b #3"]
    assert names("/a/b/../c") == ["c"]
