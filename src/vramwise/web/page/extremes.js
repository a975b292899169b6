/* The smallest and the largest of many values between two places, from few reads however many there are. */

const BLOCK = 256;

/* Of every block of values both are kept; answers (start, end) => [low, high]. */
export function extremesOf(values) {
  const blocks = Math.ceil(values.length / BLOCK);
  const lows = new Float64Array(blocks).fill(Infinity);
  const highs = new Float64Array(blocks).fill(-Infinity);
  for (let i = 0; i < values.length; i++) {
    const block = Math.floor(i / BLOCK);
    if (values[i] < lows[block]) lows[block] = values[i];
    if (values[i] > highs[block]) highs[block] = values[i];
  }
  return (start, end) => {
    let low = Infinity;
    let high = -Infinity;
    for (let i = start; i < end;) {
      const isBlock = i % BLOCK === 0 && i + BLOCK <= end;
      low = Math.min(low, isBlock ? lows[i / BLOCK] : values[i]);
      high = Math.max(high, isBlock ? highs[i / BLOCK] : values[i]);
      i += isBlock ? BLOCK : 1;
    }
    return [low, high];
  };
}

/* What a chart draws between two samples, [places, ...values]: the samples as they are where there is room for them, else
   the smallest and the largest value of every column at one place, so that a peak of one sample stays visible. */
export function drawn(series, from, to, columns) {
  const [first, last] = [Math.floor(from), Math.ceil(to)];
  if (last - first <= 2 * columns) return [Array.from({ length: last - first }, (_, i) => first + i), ...series.map(({ values }) => values.subarray(first, last))];
  const edges = Array.from({ length: columns + 1 }, (_, i) => Math.min(last, Math.floor(from + (i * (to - from)) / columns)));
  const starts = edges.slice(0, -1);
  return [starts.flatMap((start) => [start, start]), ...series.map(({ extremes }) => starts.flatMap((start, i) => extremes(start, edges[i + 1])))];
}

/* Whether a chart draws smallest and largest values and not samples. */
export const isCondensed = ([places]) => places[0] === places[1];
