"""Speeds from the times of answers, and the prompts of measurements."""

from vinery_serving.models.speed.bench import Answer, Run, next_turn, prompt_ids


def answer(began_s: float, *chunks: tuple[float, int], num_prompt_tokens: int = 100) -> Answer:
    ids = tuple(range(sum(num for _, num in chunks)))
    return Answer(num_prompt_tokens, ids, began_s, chunks)


def test_one_stream_and_several_have_their_speeds_with_prompts_that_differ() -> None:
    run = Run((answer(10.0, (10.5, 1), (10.6, 1), (10.7, 2), (11.5, 2)),))
    assert run.first_token_s == 0.5
    assert run.prompt_tokens_per_s == 200
    assert run.output_tokens_per_s == 5  # the first token is no part of the second it waits for
    assert run.duration_s == 1.5

    early = answer(0.0, (1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1))
    late = answer(0.0, (2.0, 1), (3.0, 1), (4.0, 1))
    run = Run((early, late))
    assert run.output_tokens_per_s == 2
    assert run.prompt_tokens_per_s == 100
    assert run.first_token_s == 1.5

    def encode(text: str) -> list[int]:
        return list(text.encode())

    one, same, other = (prompt_ids(encode, number, 200) for number in (1, 1, 2))
    assert one == same
    assert len(one) == len(other) == 200
    assert one[:10] != other[:10]
    assert next_turn(encode, one, [7, 8])[:202] == [*one, 7, 8]
