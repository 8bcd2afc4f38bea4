import { defineConfig, env, key } from 'oncehook'

// Plaid's webhooks only say that something has changed: they name no amount and no customer beyond what you gave when you made
// the payment. The secrets are `client_id:secret`, by which its keys are looked up.
export default defineConfig({
  sources: {
    plaid: { provider: 'plaid', secrets: env.list('PLAID_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'plaid',
      type: 'PAYMENT_INITIATION.PAYMENT_STATUS_UPDATE',
      // Plaid itself sends no address: look it up by the payment ID.
      email: ({ payment_id, new_payment_status, user }) =>
        new_payment_status === 'PAYMENT_STATUS_EXECUTED' &&
        user?.email_address && {
          key: key('payment', payment_id, 'executed'),
          to: user?.email_address,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
  ],
})
