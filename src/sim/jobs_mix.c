/*
 * The 18 jobs of IGTCache's Table 3 (section 5.1), scaled down.
 *
 * The paper gives data sets, models, patterns, who shares what, arrivals (Poisson, 60 s), the
 * source (150 ms, 1 Gbit/s), the block (4 MB) and the sum of the data (about 430 GB). It gives no
 * sizes of items, no times of compute, no numbers of epochs, batches or workers: those are chosen
 * here, once, before any result was seen, from what is publicly known of the data sets and models.
 *
 * Scale. Everything is a tenth of the real data set, in this way: of data sets with more than
 * 20,000 items there is a tenth of the items, each as large as it really is; smaller ones keep
 * their structure and have files a tenth as large (so a scan of 453 tables or 2,000 months still
 * is one). The checkpoint is as large as it is. Sum: about 45 GB.
 *
 * Times. Compute is the time of one item on the paper's device: V100 (single precision, usual
 * throughputs of the models), A100 or CPU. Decode is the work of a loader's process: 8 ms for an
 * ImageNet JPEG (110 KB, resized and cropped), 4 ms for one of 256 x 256. Loaders have 8 processes
 * for training and 4 for tests, batches of 256 and 64. Analyses and queries read by themselves.
 * Trainings go on for 3 epochs: one, in which nobody can hit what is not fetched ahead, and two in
 * which what was kept counts. The real ones take 90, which would be all hits and compute.
 */
#include <math.h>

#include "base/rand.h"
#include "sim/jobs.h"

#define KB 1000ULL
#define MB 1000000ULL

enum {
    AUDIOMNIST,
    FASHION,
    AIRQUALITY,
    ICOADS,
    BOOKCORPUS,
    CHECKPOINT,
    IMAGENET_VAL,
    IMAGENET_TRAIN,
    PLACES_VAL,
    PLACES_TRAIN,
    LAKEBENCH,
    WIKI,
    LLAVA,
    COCO,
};

static const struct fb_job_set sets[] = {
    /* 30,000 recordings of 60 speakers in a directory each; 48 kHz, 16 bit, about 0.64 s. */
    [AUDIOMNIST] = {.path = "AudioMNIST/data",
                    .dirs = 60,
                    .files = 50,
                    .dir_name = {.prefix = "", .suffix = "", .width = 2},
                    .file_name = {.prefix = "0_", .suffix = ".wav", .width = 4},
                    .mean_bytes = 61 * KB,
                    .spread = 0.2},
    /* 44,441 product photographs in one directory, 15 GB. */
    [FASHION] = {.path = "fashion-dataset/images",
                 .files = 4444,
                 .file_name = {.prefix = "", .suffix = ".jpg", .width = 5},
                 .mean_bytes = 340 * KB,
                 .spread = 0.5},
    /* 453 stations, a table each, 2.9 GB. */
    [AIRQUALITY] = {.path = "AirQuality",
                    .files = 453,
                    .file_name = {.prefix = "station", .suffix = ".csv", .width = 3},
                    .mean_bytes = 640 * KB,
                    .spread = 0.5},
    /* 2,000 months with 10 regions each (the paper's figure 7); 400 KB of reports a region and
     * month on average over a century and a half. */
    [ICOADS] = {.path = "ICOADS",
                .dirs = 2000,
                .files = 10,
                .dir_name = {.prefix = "", .suffix = "", .are_months = true},
                .file_name = {.prefix = "region_", .suffix = ".csv", .width = 2},
                .mean_bytes = 40 * KB,
                .spread = 0.5},
    /* 74 million sentences in 16 files (the paper's table 1), 4.85 GB. */
    [BOOKCORPUS] = {.path = "bookcorpus/train",
                    .files = 16,
                    .file_name = {.prefix = "data-", .suffix = ".arrow", .width = 5},
                    .mean_bytes = 30300 * KB},
    /* 125 million weights of 16 bits. */
    [CHECKPOINT] = {.path = "opt-125m",
                    .files = 1,
                    .file_name = {.prefix = "pytorch_model_", .suffix = ".bin", .width = 1},
                    .mean_bytes = 251 * MB},
    /* 50,000 images, 50 of each class; 1.28 million images of 1,000 classes, 140 GB. */
    [IMAGENET_VAL] = {.path = "imagenet/val",
                      .dirs = 1000,
                      .files = 5,
                      .dir_name = {.prefix = "n", .suffix = "", .width = 8},
                      .file_name = {.prefix = "val_", .suffix = ".JPEG", .width = 8},
                      .mean_bytes = 110 * KB,
                      .spread = 0.6},
    [IMAGENET_TRAIN] = {.path = "imagenet/train",
                        .dirs = 1000,
                        .files = 128,
                        .dir_name = {.prefix = "n", .suffix = "", .width = 8},
                        .file_name = {.prefix = "img_", .suffix = ".JPEG", .width = 8},
                        .mean_bytes = 110 * KB,
                        .spread = 0.6},
    /* Places205: 20,500 and 2.45 million images of 205 scenes, 256 x 256, 130 GB. */
    [PLACES_VAL] = {.path = "places/val",
                    .dirs = 205,
                    .files = 10,
                    .dir_name = {.prefix = "scene", .suffix = "", .width = 3},
                    .file_name = {.prefix = "val_", .suffix = ".jpg", .width = 8},
                    .mean_bytes = 50 * KB,
                    .spread = 0.4},
    [PLACES_TRAIN] = {.path = "places/train",
                      .dirs = 205,
                      .files = 1195,
                      .dir_name = {.prefix = "scene", .suffix = "", .width = 3},
                      .file_name = {.prefix = "gsun_", .suffix = ".jpg", .width = 8},
                      .mean_bytes = 50 * KB,
                      .spread = 0.4},
    /* About 10,000 open-data tables of very different length, 24 GB. */
    [LAKEBENCH] = {.path = "lakebench/tables",
                   .files = 10000,
                   .file_name = {.prefix = "table_", .suffix = ".csv", .width = 6},
                   .mean_bytes = 240 * KB,
                   .spread = 1.2},
    /* 35 million passages with a vector of 768 floats each: 253 files, 107 GB. */
    [WIKI] = {.path = "wikipedia-22-12-en-embeddings",
              .files = 253,
              .file_name = {.prefix = "train-", .suffix = ".parquet", .width = 5},
              .mean_bytes = 10ULL * FB_JOB_BLOCK},
    /* One JSON of 229 MB; 118,000 photographs in one directory, 19 GB. */
    [LLAVA] = {.path = "llava",
               .files = 1,
               .file_name = {.prefix = "llava_instruct_", .suffix = ".json", .width = 1},
               .mean_bytes = 23 * MB},
    [COCO] = {.path = "coco/train2017",
              .files = 11800,
              .file_name = {.prefix = "", .suffix = ".jpg", .width = 12},
              .mean_bytes = 163 * KB,
              .spread = 0.4},
};

/* Training on images: a loader of 8 processes, batches of 256, 3 epochs. */
#define TRAINING(the_set, decode, compute)                                              \
 {                                                                                      \
  {                                                                                     \
   .set = (the_set), .order = FB_JOB_SHUFFLED, .rounds = 3, .workers = 8, .batch = 256, \
   .decode_s = (decode), .compute_s = (compute)                                         \
  }                                                                                     \
 }

/* A test: all of the set in order, once. */
#define TEST(the_set, decode, compute)                                                 \
 {                                                                                     \
  {                                                                                    \
   .set = (the_set), .order = FB_JOB_IN_ORDER, .rounds = 1, .workers = 4, .batch = 64, \
   .decode_s = (decode), .compute_s = (compute)                                        \
  }                                                                                    \
 }

static const struct fb_job jobs[] = {
    /* All of it is read into memory once, 2 ms for a spectrogram; then 10 epochs of 3,000 at 4 ms
     * (VGG16, V100) from there. */
    {.number = 1,
     .name = "AudioMNIST VGG16 training",
     .pattern = "sequential",
     .phases = 1,
     .phase = {{.set = AUDIOMNIST,
                .order = FB_JOB_IN_ORDER,
                .rounds = 1,
                .batch = 1,
                .decode_s = 0.002}},
     .tail_s = 120},
    /* VGG16: about 700 images a second. */
    {.number = 2,
     .name = "FashionProduct VGG16 test",
     .pattern = "sequential",
     .phases = 1,
     .phase = TEST(FASHION, 0.008, 0.0014)},
    /* Tables are parsed at about 30 MB/s. */
    {.number = 3,
     .name = "AirQuality analysis",
     .pattern = "sequential",
     .phases = 1,
     .phase = {{.set = AIRQUALITY,
                .order = FB_JOB_IN_ORDER,
                .rounds = 1,
                .batch = 1,
                .compute_s = 0.02}}},
    /* One region through all months. */
    {.number = 4,
     .name = "ICOADS marine analysis",
     .pattern = "sequential",
     .phases = 1,
     .phase =
         {{.set = ICOADS, .order = FB_JOB_ONE_EACH, .rounds = 1, .batch = 1, .compute_s = 0.02}}},
    /* A tokenizer does about 20 MB/s. */
    {.number = 5,
     .name = "Bookcorpus preprocessing",
     .pattern = "sequential",
     .phases = 1,
     .phase = {{.set = BOOKCORPUS,
                .order = FB_JOB_IN_ORDER,
                .rounds = 1,
                .batch = 1,
                .compute_s = 0.2}}},
    /* 1 GB/s into the device. */
    {.number = 6,
     .name = "OPT-125M checkpoint loading",
     .pattern = "sequential",
     .phases = 1,
     .phase = {{.set = CHECKPOINT,
                .order = FB_JOB_IN_ORDER,
                .rounds = 1,
                .batch = 1,
                .compute_s = 0.004}}},
    /* Samples of 1,024 tokens, 4.5 KB, anywhere in the files: one epoch is 108,000; an A100 does
     * about 100 a second. */
    {.number = 7,
     .name = "OPT-125M finetuning",
     .pattern = "random",
     .phases = 1,
     .phase = {{.set = BOOKCORPUS,
                .order = FB_JOB_DRAWN,
                .reads = 108000,
                .read_bytes = 4500,
                .workers = 4,
                .batch = 32,
                .compute_s = 0.01}}},
    /* ResNet-50 on a V100: 1,200 a second in tests, 400 in training; AlexNet 4,000 and 2,500. */
    {.number = 8,
     .name = "ImageNet ResNet-50 test",
     .pattern = "sequential",
     .phases = 1,
     .phase = TEST(IMAGENET_VAL, 0.008, 0.0008)},
    {.number = 9,
     .name = "ImageNet ResNet-50 training",
     .pattern = "random",
     .phases = 1,
     .phase = TRAINING(IMAGENET_TRAIN, 0.008, 0.0025)},
    {.number = 10,
     .name = "ImageNet AlexNet training",
     .pattern = "random",
     .phases = 1,
     .phase = TRAINING(IMAGENET_TRAIN, 0.008, 0.0004)},
    {.number = 11,
     .name = "Places AlexNet test",
     .pattern = "sequential",
     .phases = 1,
     .phase = TEST(PLACES_VAL, 0.004, 0.00025)},
    {.number = 12,
     .name = "Places ResNet-50 training",
     .pattern = "random",
     .phases = 1,
     .phase = TRAINING(PLACES_TRAIN, 0.004, 0.0025)},
    {.number = 13,
     .name = "Places AlexNet training",
     .pattern = "random",
     .phases = 1,
     .phase = TRAINING(PLACES_TRAIN, 0.004, 0.0004)},
    /* A query table is held against 15 or 20 candidates; tables that many others join with are
     * candidates again and again. */
    {.number = 14,
     .name = "LakeBench table join",
     .pattern = "skewed",
     .phases = 1,
     .phase = {{.set = LAKEBENCH,
                .order = FB_JOB_ZIPF,
                .reads = 15000,
                .zipf = 1.0,
                .batch = 15,
                .compute_s = 0.02}}},
    {.number = 15,
     .name = "LakeBench table union",
     .pattern = "skewed",
     .phases = 1,
     .phase = {{.set = LAKEBENCH,
                .order = FB_JOB_ZIPF,
                .reads = 10000,
                .zipf = 1.0,
                .batch = 20,
                .compute_s = 0.04}}},
    /* A tenth of TriviaQA's 11,000 questions; 10 or 5 passages each, in pages of 256 KB; answers
     * take a second of the large model, 0.3 of the small one. */
    {.number = 16,
     .name = "Wiki RAG, large",
     .pattern = "skewed",
     .phases = 1,
     .phase = {{.set = WIKI,
                .order = FB_JOB_ZIPF,
                .reads = 11000,
                .zipf = 1.0,
                .read_bytes = 256 * KB,
                .batch = 10,
                .compute_s = 0.1}}},
    {.number = 17,
     .name = "Wiki RAG, small",
     .pattern = "skewed",
     .phases = 1,
     .phase = {{.set = WIKI,
                .order = FB_JOB_ZIPF,
                .reads = 5500,
                .zipf = 1.0,
                .read_bytes = 256 * KB,
                .batch = 5,
                .compute_s = 0.06}}},
    /* The text is loaded whole; 158,000 samples speak of 81,000 of the photographs, about two
     * each, which as many draws from 118,000 come near to; 4 A100 do about 8 samples a second; 4
     * processes for each of them. */
    {.number = 18,
     .name = "LLaVA multi-modal finetuning",
     .pattern = "sequential and random",
     .phases = 2,
     .phase = {{.set = LLAVA, .order = FB_JOB_IN_ORDER, .rounds = 1, .batch = 1, .compute_s = 0.1},
               {.set = COCO,
                .order = FB_JOB_DRAWN,
                .reads = 15800,
                .workers = 16,
                .batch = 64,
                .decode_s = 0.008,
                .compute_s = 0.125}}},
};

const struct fb_job_mix fb_job_mix_18 = {
    .sets = sets,
    .set_count = FB_ARRAY_SIZE(sets),
    .jobs = jobs,
    .job_count = FB_ARRAY_SIZE(jobs),
    .arrival_mean_s = 60,
};

/* The paper scales these four down by ten, and the cache to 7.5 GB; so here, 0.75 GB. Structure is
 * kept: as many classes and scenes, with a tenth of the images. Queries become fewer with the
 * tables and passages. They begin together. */
enum {
    SMALL_IMAGENET,
    SMALL_PLACES,
    SMALL_LAKEBENCH,
    SMALL_WIKI,
};

static const struct fb_job_set small_sets[] = {
    [SMALL_IMAGENET] = {.path = "imagenet/train",
                        .dirs = 1000,
                        .files = 13,
                        .dir_name = {.prefix = "n", .suffix = "", .width = 8},
                        .file_name = {.prefix = "img_", .suffix = ".JPEG", .width = 8},
                        .mean_bytes = 110 * KB,
                        .spread = 0.6},
    [SMALL_PLACES] = {.path = "places/train",
                      .dirs = 205,
                      .files = 120,
                      .dir_name = {.prefix = "scene", .suffix = "", .width = 3},
                      .file_name = {.prefix = "gsun_", .suffix = ".jpg", .width = 8},
                      .mean_bytes = 50 * KB,
                      .spread = 0.4},
    [SMALL_LAKEBENCH] = {.path = "lakebench/tables",
                         .files = 1000,
                         .file_name = {.prefix = "table_", .suffix = ".csv", .width = 6},
                         .mean_bytes = 240 * KB,
                         .spread = 1.2},
    [SMALL_WIKI] = {.path = "wikipedia-22-12-en-embeddings",
                    .files = 253,
                    .file_name = {.prefix = "train-", .suffix = ".parquet", .width = 5},
                    .mean_bytes = FB_JOB_BLOCK},
};

static const struct fb_job small_jobs[] = {
    {.number = 9,
     .name = "ImageNet ResNet-50 training",
     .pattern = "random",
     .phases = 1,
     .phase = TRAINING(SMALL_IMAGENET, 0.008, 0.0025)},
    {.number = 13,
     .name = "Places AlexNet training",
     .pattern = "random",
     .phases = 1,
     .phase = TRAINING(SMALL_PLACES, 0.004, 0.0004)},
    {.number = 14,
     .name = "LakeBench table join",
     .pattern = "skewed",
     .phases = 1,
     .phase = {{.set = SMALL_LAKEBENCH,
                .order = FB_JOB_ZIPF,
                .reads = 1500,
                .zipf = 1.0,
                .batch = 15,
                .compute_s = 0.02}}},
    {.number = 16,
     .name = "Wiki RAG, large",
     .pattern = "skewed",
     .phases = 1,
     .phase = {{.set = SMALL_WIKI,
                .order = FB_JOB_ZIPF,
                .reads = 1100,
                .zipf = 1.0,
                .read_bytes = 256 * KB,
                .batch = 10,
                .compute_s = 0.1}}},
};

const struct fb_job_mix fb_job_mix_4 = {
    .sets = small_sets,
    .set_count = FB_ARRAY_SIZE(small_sets),
    .jobs = small_jobs,
    .job_count = FB_ARRAY_SIZE(small_jobs),
};

void fb_job_arrivals(const struct fb_job_mix *mix, uint64_t seed, double *ret_s)
{
    struct fb_rand rand = {seed};
    double at = 0;

    for (size_t i = 0; i < mix->job_count; i++)
        ret_s[i] = -1;
    for (size_t left = mix->job_count; left > 0; left--) {
        uint64_t pick = fb_rand_below(&rand, left);
        size_t i = 0;

        while (ret_s[i] >= 0 || pick-- > 0)
            i++;
        ret_s[i] = at;
        at -= mix->arrival_mean_s * log(1 - fb_rand_unit(&rand));
    }
}
