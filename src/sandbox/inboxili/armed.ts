import { z } from 'zod'
import { randomNumbers } from './random.ts'

/** Whom an armed behaviour meets, and how often; without `to` it meets whoever comes next. */
export const matchSchema = z.strictObject({
  to: z.string().min(1).optional(),
  times: z.union([z.int().min(1), z.literal('always')]).default(1),
})
export type Match = z.input<typeof matchSchema>

/** A behaviour, and of how many requests it is the one: 0.1 is one in ten. */
interface Rated<T> {
  item: T
  rate: number
}

/** Behaviours waiting for their requests, first armed first used; those for one recipient go before those for all. */
export interface Armed<T> {
  arm(items: readonly T[], match?: Match): void
  /** Mixes these in at random wherever nothing else is armed; a seed gives the same ones each time. */
  mix(items: readonly Rated<T>[], seed: number): void
  take(to: string): T | undefined
  clear(): void
}

/** Makes an empty queue of armed behaviours. */
export function createArmed<T>(): Armed<T> {
  let entries: { item: T; to: string | undefined; left: number }[] = []
  let atRandom: () => T | undefined = () => undefined

  return {
    arm(items, match = {}) {
      const { to, times } = matchSchema.parse(match)
      for (const item of items) entries.push({ item, to, left: times === 'always' ? Number.POSITIVE_INFINITY : times })
    },
    mix(items, seed) {
      const random = randomNumbers(seed)
      atRandom = () => {
        let left = random()
        return items.find(({ rate }) => {
          left -= rate
          return left < 0
        })?.item
      }
    },
    take(to) {
      const entry = entries.find((one) => one.to === to) ?? entries.find((one) => one.to === undefined)
      if (entry === undefined) return atRandom()
      entry.left -= 1
      if (entry.left === 0) entries = entries.filter((one) => one !== entry)
      return entry.item
    },
    clear() {
      entries = []
      atRandom = () => undefined
    },
  }
}
