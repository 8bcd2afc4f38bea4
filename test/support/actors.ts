import { AsyncLocalStorage } from 'node:async_hooks'
import { armFault, type FaultPoint } from '../../src/fault-points.ts'

/** Work that goes on from place to place only when it is told to, so that a schedule decides what comes first. */
export interface Actor {
  name: string
  /** Where it stands; undefined once it is over. */
  at: FaultPoint | undefined
  /** Has it go on, or crash, where it stands; resolves when it stands again or is over. */
  next(crashes?: boolean): Promise<void>
}

/** No transaction is open at these, so nobody waits for an actor that stands there. */
const places = ['send.before_claim', 'send.claimed', 'send.response_received', 'send.recorded'] as const

const current = new AsyncLocalStorage<{ stop(at: FaultPoint): Promise<void> }>()

/** Has actors stand at their places; whoever is no actor passes. */
export function armActors(): { disarm(): void } {
  const armed = places.map((place) => armFault(place, (at) => current.getStore()?.stop(at)))
  return { disarm: () => void armed.map((one) => one.disarm()) }
}

/** Starts an actor; resolves when it stands at its first place or is over. */
export async function startActor(name: string, work: () => Promise<unknown>): Promise<Actor> {
  let stands = Promise.withResolvers<void>()
  let gate = Promise.withResolvers<void>()
  const actor: Actor = {
    name,
    at: undefined,
    async next(crashes = false) {
      stands = Promise.withResolvers<void>()
      const { resolve, reject } = gate
      gate = Promise.withResolvers<void>()
      actor.at = undefined
      if (crashes) reject(new Error('crashed'))
      else resolve()
      await stands.promise
    },
  }
  const stop = (at: FaultPoint) => {
    actor.at = at
    stands.resolve()
    return gate.promise
  }
  const over = () => stands.resolve()
  void current.run({ stop }, work).then(over, over)
  await stands.promise
  return actor
}
