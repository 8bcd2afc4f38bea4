import { isStorageAway } from '../db.ts'

/**
 * Has the statements that are asked for at the same time be one: while one is under way the next gathers. No timer holds back a lone
 * one. Where the database refuses a statement for several, each gets its own, so that one can't fail its neighbours.
 */
export function gathered<Item, Result>(
  most: number,
  work: (items: readonly Item[]) => Promise<readonly Result[]>,
): (item: Item) => Promise<Result> {
  interface Waiting {
    item: Item
    resolve(result: Result): void
    reject(error: unknown): void
  }
  const waiting: Waiting[] = []
  let isWorking = false

  const workOn = async () => {
    // What is asked for in this moment comes along.
    await new Promise(setImmediate)
    while (waiting.length > 0) await workTogether(waiting.splice(0, most))
    // In the same breath as the look above, so that what comes next finds that nobody is working.
    isWorking = false
  }
  const workTogether = async (batch: readonly Waiting[]): Promise<void> => {
    try {
      const results = await work(batch.map(({ item }) => item))
      for (const [index, { resolve }] of batch.entries()) resolve(results[index] as Result) // one for each item
    } catch (error) {
      const isOfOne = !isStorageAway(error) || (error as { code?: unknown }).code === '40P01'
      if (batch.length > 1 && isOfOne) for (const one of batch) await workTogether([one])
      else for (const { reject } of batch) reject(error)
    }
  }
  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject })
      if (isWorking) return
      isWorking = true
      void workOn()
    })
}
