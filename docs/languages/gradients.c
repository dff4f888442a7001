/* Three backwards in C, without a library. Read the folder of a case, write the gradients into another folder:

       cc -O2 -o gradients gradients.c -lm
       ./gradients softmax CASE MINE

   A last argument plants a mistake: diagonal (softmax), mean (layer_norm), scale (attention). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *from, *to, *mistake;
static char about[100000];
static long count; /* the numbers in the array that was read last */

static FILE *open_file(const char *folder, const char *name, const char *mode) {
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, mode);
    if (!file) { perror(path); exit(2); }
    return file;
}

static void *read_array(const char *name, size_t width) {
    FILE *file = open_file(from, name, "rb");
    fseek(file, 0, SEEK_END);
    count = ftell(file) / width;
    rewind(file);
    void *data = malloc(count * width + 1);
    if (fread(data, width, count, file) != (size_t)count) exit(2);
    fclose(file);
    return data;
}

static float *floats(const char *name) { return read_array(name, sizeof(float)); }

static float *zeros(long n) { return calloc(n, sizeof(float)); }

static void write_array(const char *name, const float *x, long n) {
    FILE *file = open_file(to, name, "wb");
    fwrite(x, sizeof(float), n, file);
    fclose(file);
}

/* The first "d": 5 in case.json: the sizes and options stand before the arrays. */
static double number(const char *name) {
    char key[100];
    snprintf(key, sizeof key, "\"%s\": ", name);
    char *at = strstr(about, key);
    if (!at) { fprintf(stderr, "case.json has no %s\n", name); exit(2); }
    return strtod(at + strlen(key), NULL);
}

static int planted(const char *name) { return mistake && !strcmp(mistake, name); }

/* dx = y (dy - sum dy y), for one row */
static void softmax_row(const float *y, const float *dy, float *dx, int d) {
    float sum = 0;
    for (int i = 0; i < d; i++) sum += dy[i] * y[i];
    for (int i = 0; i < d; i++) dx[i] = y[i] * (dy[i] - (planted("diagonal") ? y[i] * dy[i] : sum));
}

static void softmax(void) {
    int d = number("d");
    float *y = floats("y.bin"), *dy = floats("dy.bin"), *dx = zeros(count);
    for (long row = 0; row < count / d; row++) softmax_row(y + row * d, dy + row * d, dx + row * d, d);
    write_array("dx.bin", dx, count);
}

/* h = gamma dy;  dx = (h - mean h - x_hat mean(h x_hat)) / sqrt(var + eps) */
static void layer_norm(void) {
    int d = number("d");
    double eps = number("eps");
    float *gamma = floats("gamma.bin"), *x = floats("x.bin"), *dy = floats("dy.bin");
    float *dx = zeros(count), *dgamma = zeros(d), *dbeta = zeros(d);
    for (long row = 0; row < count / d; row++, x += d, dy += d) {
        double mean = 0, var = 0, mean_h = 0, mean_hx = 0;
        for (int i = 0; i < d; i++) mean += x[i] / (double)d;
        for (int i = 0; i < d; i++) var += (x[i] - mean) * (x[i] - mean) / d;
        double scale = 1 / sqrt(var + eps);
        for (int i = 0; i < d; i++) {
            double x_hat = (x[i] - mean) * scale, h = gamma[i] * dy[i];
            mean_h += h / d;
            mean_hx += h * x_hat / d;
            dgamma[i] += dy[i] * x_hat;
            dbeta[i] += dy[i];
        }
        if (planted("mean")) mean_h = 0;
        for (int i = 0; i < d; i++)
            dx[row * d + i] = (gamma[i] * dy[i] - mean_h - (x[i] - mean) * scale * mean_hx) * scale;
    }
    write_array("dx.bin", dx, count);
    write_array("dgamma.bin", dgamma, d);
    write_array("dbeta.bin", dbeta, d);
}

/* y = w v with w = softmax(scale q k^T), hidden pairs at weight 0:
   dv = w^T dy,  ds = softmax_row(w, dy v^T),  dq = scale ds k,  dk = scale ds^T q */
static void attention(void) {
    int T_q = number("T_q"), T_k = number("T_k"), d_k = number("d_k"), d_v = number("d_v");
    int heads = number("B") * number("H");
    float scale = 1 / sqrtf(d_k);
    float *q = floats("q.bin"), *k = floats("k.bin"), *v = floats("v.bin"), *dy = floats("dy.bin");
    char *mask = read_array("mask.bin", 1);
    float *dq = zeros(heads * T_q * d_k), *dk = zeros(heads * T_k * d_k), *dv = zeros(heads * T_k * d_v);
    float *w = zeros(T_k), *dw = zeros(T_k), *ds = zeros(T_k);
    for (int row = 0; row < heads * T_q; row++) {
        int i = row % T_q, head = row / T_q;
        const float *ki = k + head * T_k * d_k, *vi = v + head * T_k * d_v;
        float largest = -INFINITY, sum = 0;
        for (int j = 0; j < T_k; j++) {
            w[j] = 0;
            for (int c = 0; c < d_k; c++) w[j] += scale * q[row * d_k + c] * ki[j * d_k + c];
            if (mask[i * T_k + j]) largest = fmaxf(largest, w[j]);
        }
        for (int j = 0; j < T_k; j++) sum += w[j] = mask[i * T_k + j] ? expf(w[j] - largest) : 0;
        for (int j = 0; j < T_k; j++) {
            w[j] = sum ? w[j] / sum : 0; /* a row whose keys are all hidden */
            dw[j] = 0;
            for (int c = 0; c < d_v; c++) {
                dw[j] += dy[row * d_v + c] * vi[j * d_v + c];
                dv[(head * T_k + j) * d_v + c] += w[j] * dy[row * d_v + c];
            }
        }
        softmax_row(w, dw, ds, T_k);
        float again = planted("scale") ? 1 : scale;
        for (int j = 0; j < T_k; j++)
            for (int c = 0; c < d_k; c++) {
                dq[row * d_k + c] += again * ds[j] * ki[j * d_k + c];
                dk[(head * T_k + j) * d_k + c] += again * ds[j] * q[row * d_k + c];
            }
    }
    write_array("dq.bin", dq, heads * T_q * d_k);
    write_array("dk.bin", dk, heads * T_k * d_k);
    write_array("dv.bin", dv, heads * T_k * d_v);
}

int main(int n, char **given) {
    if (n < 4) { fprintf(stderr, "gradients softmax|layer_norm|attention CASE MINE [MISTAKE]\n"); return 2; }
    from = given[2], to = given[3], mistake = n > 4 ? given[4] : NULL;
    if (mistake && !planted("diagonal") && !planted("mean") && !planted("scale")) {
        fprintf(stderr, "the mistakes are diagonal, mean and scale, not %s\n", mistake);
        return 2;
    }
    FILE *file = open_file(from, "case.json", "rb");
    about[fread(about, 1, sizeof about - 1, file)] = 0;
    fclose(file);
    if (!strcmp(given[1], "softmax")) softmax();
    else if (!strcmp(given[1], "layer_norm")) layer_norm();
    else if (!strcmp(given[1], "attention")) attention();
    else { fprintf(stderr, "there is no %s here\n", given[1]); return 2; }
    return 0;
}
