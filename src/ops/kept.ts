/** Keeps an answer for a while; who asks meanwhile gets it too, also while it is looked for. What fails is not kept. */
export function kept<Answer>(ms: number, find: (now: Date) => Promise<Answer>): (now: Date) => Promise<Answer> {
  let held: { until: number; answer: Promise<Answer> } | undefined
  return (now) => {
    const at = performance.now()
    if (held && at < held.until) return held.answer
    const answer = find(now)
    const mine = { until: Number.POSITIVE_INFINITY, answer }
    held = mine
    answer.then(
      () => {
        mine.until = performance.now() + ms
      },
      () => {
        if (held === mine) held = undefined
      },
    )
    return answer
  }
}
