import { z } from 'zod'

/** Whom an armed behaviour meets, and how often; without `to` it meets whoever comes next. */
export const matchSchema = z.strictObject({
  to: z.string().min(1).optional(),
  times: z.union([z.int().min(1), z.literal('always')]).default(1),
})
export type Match = z.input<typeof matchSchema>

/** Behaviours waiting for their requests, first armed first used; those for one recipient go before those for all. */
export interface Armed<T> {
  arm(items: readonly T[], match?: Match): void
  take(to: string): T | undefined
  clear(): void
}

/** Makes an empty queue of armed behaviours. */
export function createArmed<T>(): Armed<T> {
  let entries: { item: T; to: string | undefined; left: number }[] = []

  return {
    arm(items, match = {}) {
      const { to, times } = matchSchema.parse(match)
      for (const item of items) entries.push({ item, to, left: times === 'always' ? Number.POSITIVE_INFINITY : times })
    },
    take(to) {
      const entry = entries.find((one) => one.to === to) ?? entries.find((one) => one.to === undefined)
      if (entry === undefined) return undefined
      entry.left -= 1
      if (entry.left === 0) entries = entries.filter((one) => one !== entry)
      return entry.item
    },
    clear() {
      entries = []
    },
  }
}
