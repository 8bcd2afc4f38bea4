import { on, once } from 'node:events'
import type { BenchServer } from './database.ts'
import type { Started } from './processes.ts'

/** Has a load carry out an order. */
export async function tell<Answer>({ child }: Started, order: object): Promise<Answer> {
  const answer = once(child, 'message')
  child.send(order)
  return ((await answer) as [Answer])[0] // what the program answers its orders with
}

/** The same, and restarts PostgreSQL when half of the order's time is over; tells how long that took, too. */
export async function tellWithRestart<Answer>(
  { child }: Started,
  order: object,
  server: BenchServer,
): Promise<Answer & { restartSeconds: number }> {
  const messages = on(child, 'message')
  child.send({ ...order, withRestart: true })
  await messages.next()
  const began = performance.now()
  const restarted = server.restart().then(() => (performance.now() - began) / 1000)
  const [{ value }, restartSeconds] = await Promise.all([messages.next(), restarted])
  await messages.return?.()
  const [answer] = value as [Answer] // as above
  return { ...answer, restartSeconds }
}
