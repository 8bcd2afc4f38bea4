import { z } from 'zod'

const share = (fallback: number) => z.number().min(0).max(1).default(fallback)
const whole = (fallback: number) => z.number().int().min(0).max(1_000_000_000).default(fallback)

/** From where on the overview says "attention" or "problem"; `ops.limits` of the configuration moves them. */
export const limitsSchema = z.strictObject({
  /** Receiving: requests with a wrong signature in the last 10 minutes, as a share of all and at least so many. */
  refusedShare: share(0.05),
  refusedAtLeast: whole(20),
  ackP99Ms: whole(500),
  /** A source is quiet after so many times its longest gap at this time of day in 4 weeks, and at least so many minutes. */
  quietTimes: z.number().min(1).max(1_000).default(3),
  quietAtLeastMinutes: whole(30),
  /** Processing: age of the oldest event that waits. */
  waitingSeconds: whole(60),
  waitingProblemSeconds: whole(600),
  /** Sending: how long the queue takes, and the share of the last hour's calls whose outcome is unknown. */
  queueMinutes: whole(10),
  unknownShare: share(0.01),
  /** Delivery reports: sends of the last day, older than an hour, that have none; and silence after so many accepted emails. */
  unreportedShare: share(0.05),
  silentMinutes: whole(30),
  silentAfterAccepted: whole(20),
  /** Decisions: how many open ones, and the age of the oldest. */
  openDecisions: whole(1),
  oldestDecisionHours: whole(24),
  /** Storage: how long ago the last sweep ended. */
  sweepSeconds: whole(120),
})
export type Limits = z.output<typeof limitsSchema>
