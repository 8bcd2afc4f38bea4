import { randomNumbers } from '../../src/sandbox/inboxili/random.ts'

/** Choices that look random and are the same for each run with a seed. */
export function chancesOf(seed: number) {
  const random = randomNumbers(seed)
  const below = (limit: number) => Math.floor(random() * limit)
  const chance = (percent: number) => random() * 100 < percent
  const pick = <One>(from: readonly One[]): One | undefined => from[below(from.length)]
  const weighted = <One>(from: readonly (readonly [number, One])[]): One => {
    let left = random() * from.reduce((sum, [weight]) => sum + weight, 0)
    for (const [weight, one] of from) {
      left -= weight
      if (left < 0) return one
    }
    throw new Error('no weight is left')
  }
  return { below, chance, pick, weighted }
}
