from polyclinic.data.seeds import generator


def test_the_same_words_give_the_same_stream_and_others_another():
    assert generator(0, "split", "a").random() == generator(0, "split", "a").random()
    assert generator(0, "split", "a").random() != generator(1, "split", "a").random()


def test_words_do_not_run_into_each_other():
    assert generator("ab", "c").random() != generator("a", "bc").random()
