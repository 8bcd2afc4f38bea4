import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createTurns } from '../src/events/turns.ts'

test('I18 a turn of the event loop does so much, the next ones the rest, in the order in which it came', async () => {
  const { take: turn } = createTurns(3)
  const done: number[] = []
  const all = Promise.all(
    [1, 2, 3, 4, 5, 6, 7, 8].map(async (number) => {
      await turn()?.turn
      done.push(number)
    }),
  )

  await Promise.resolve()
  expect(done).toEqual([1, 2, 3])
  await nextTurn()
  expect(done).toEqual([1, 2, 3, 4, 5, 6])
  await all
  expect(done).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
})

test('I18 what comes while others wait has no turn before them', async () => {
  const { take: turn } = createTurns(1)
  expect(turn()).toBeUndefined()
  const second = turn()
  const third = turn()
  const order: string[] = []
  void second?.turn.then(() => order.push('second'))

  await nextTurn()
  void turn()?.turn.then(() => order.push('fourth'))
  void third?.turn.then(() => order.push('third'))
  await nextTurn()
  await nextTurn()
  await nextTurn()

  expect(order).toEqual(['second', 'third', 'fourth'])
})

test('I18 what is dropped waits no longer, and takes no turn of another', async () => {
  const { take } = createTurns(1)
  expect(take()).toBeUndefined()
  const [dropped, kept] = [take(), take()]
  dropped?.drop()

  await expect(dropped?.turn).resolves.toBe(false)
  await nextTurn()
  dropped?.drop()
  await expect(kept?.turn).resolves.toBe(true)
})

test('I18 what was dropped makes nobody wait a turn longer, however many were', async () => {
  const { take } = createTurns(1)
  take()
  const dropped = [take(), take(), take()]
  const kept = [take(), take(), take()]
  const order: number[] = []
  for (const [number, wait] of kept.entries()) void wait?.turn.then((isTurn) => isTurn && order.push(number))
  for (const wait of dropped) wait?.drop()
  kept[1]?.drop()

  await nextTurn()
  expect(order).toEqual([0])
  await nextTurn()
  expect(order).toEqual([0, 2])
  // Nothing is left of those that had their turn.
  await nextTurn()
  expect(take()).toBeUndefined()
})

test('one that comes alone has its turn at once, also in a later turn', async () => {
  const { take: turn } = createTurns(1)

  expect(turn()).toBeUndefined()
  await nextTurn()
  await nextTurn()
  expect(turn()).toBeUndefined()
})
