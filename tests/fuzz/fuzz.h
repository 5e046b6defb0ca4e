/*
 * tests/fuzz/fuzz.h - what a fuzzer of ours consists of.
 *
 * A fuzzer takes any bytes, gives them to a parser, and asserts what must hold of the outcome
 * whatever they are. It also names seeds, well-formed inputs to begin with, and words that inputs
 * are made of.
 *
 * Usually it is linked with driver.c, which makes inputs out of seeds and words: the same ones in
 * every run, so it is a test like others, on every compiler and under every sanitizer. For longer
 * hunts, guided by coverage, link it with libFuzzer:
 *
 *     CC=clang meson setup build/fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
 *     ninja -C build/fuzz && build/gcc/tests/fuzz/fuzz_s3_xml --write SEEDS
 *     build/fuzz/tests/fuzz/fuzz_s3_xml SEEDS
 */
#ifndef FB_TESTS_FUZZ_FUZZ_H
#define FB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The name is libFuzzer's. Always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Both end with NULL. */
extern const char *const fb_fuzz_seeds[];
extern const char *const fb_fuzz_words[];

#endif
