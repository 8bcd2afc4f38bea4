import { expect, test } from 'vitest'
import { play } from './support/schedule.ts'
import { patientDatabase } from './support/sends.ts'
import { openStage } from './support/stage.ts'

// Seeded schedules of everything that may happen, in any order. `npm run test:schedules` plays a thousand; SEED=n SCHEDULES=1 plays
// again the one that failed.

const SCHEDULES = Number(process.env.SCHEDULES ?? 60)
const FIRST_SEED = Number(process.env.SEED ?? 20_261_129)

const stage = await openStage(await patientDatabase())

test(`I1 I2 I3 I6 I7 I8 I9 I10 I13 hold in ${SCHEDULES} schedules from seed ${FIRST_SEED} on`, async () => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SCHEDULES; seed += 1) {
    const { steps, broken } = await play(stage, seed).catch((error: unknown) => {
      throw new Error(`seed ${seed} ended with an error`, { cause: error })
    })
    expect(broken, `seed ${seed}:\n${steps.join('\n')}`).toEqual([])
  }
}, 3_600_000)

test('a seed alone makes the same schedule again', async () => {
  const withoutTimes = ({ steps }: { steps: string[] }) =>
    steps.map((step) => step.replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'then'))

  for (const seed of [1, 2, 3]) {
    const first = withoutTimes(await play(stage, seed))
    expect(withoutTimes(await play(stage, seed))).toEqual(first)
  }
})
