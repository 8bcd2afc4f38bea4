import { setImmediate as nextTurn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, onTestFinished, test } from 'vitest'
import { openPool } from '../src/db.ts'
import { createRecorder } from '../src/events/record.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createProvider } from '../src/providers/registry.ts'
import { testDatabase } from './support/database.ts'
import { deliveryOf } from './support/deliveries.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as (options?: { type: 'minor' }) => void // what that flag adds

const database = await testDatabase()
const jobs = await openJobs(database.url)
const SIZE = 200_000
const TIMES = 20

/** Bytes of buffers that are left of what was done so often, with what is new cleaned after each time, but not all of the heap. */
async function bytesLeftOf(work: (time: number) => Promise<unknown>): Promise<number> {
  for (let time = 0; time < TIMES; time += 1) await work(-1 - time)
  // Buffers are freed beside the program, at the latest by the next time.
  collect()
  collect()
  const before = process.memoryUsage().arrayBuffers
  for (let time = 0; time < TIMES; time += 1) {
    await work(time)
    await nextTurn()
    collect({ type: 'minor' })
  }
  collect({ type: 'minor' })
  return process.memoryUsage().arrayBuffers - before
}

test('I18 what a batch held is freed with what is new, not only when all of the heap is cleaned', async () => {
  const pool = openPool({ url: database.url, name: 'freed', max: 1 })
  onTestFinished(() => pool.end())
  const recorder = createRecorder(pool, jobs)
  const provider = createProvider('stripe')
  const deliver = (id: string) => recorder.record(deliveryOf(id, Buffer.alloc(SIZE, id)), provider)

  expect(await bytesLeftOf((time) => deliver(`evt_${time}`))).toBeLessThan(5 * SIZE)
})
