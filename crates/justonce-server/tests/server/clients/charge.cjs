// Charges a card as an application would: with the SDK's own key and its retries.

const Stripe = require("stripe");

const [base, retries, timeout] = process.argv.slice(2);
const url = new URL(base);
const stripe = new Stripe("sk_test_justonce", {
  host: url.hostname,
  port: url.port,
  protocol: "http",
  maxNetworkRetries: Number(retries),
  timeout: Number(timeout) * 1000,
  telemetry: false,
});
const charge = {
  amount: 2000,
  currency: "eur",
  source: "tok_visa",
  description: "10% off & more = ü",
  metadata: { order: "17" },
};
stripe.charges.create(charge).then(
  (made) => ({ id: made.id, object: made.object, amount: made.amount, status: made.status }),
  (error) => ({ error: error.type, status: error.statusCode }),
).then((told) => {
  // The answers to earlier tries were never read, and would keep the process until they time out.
  process.stdout.write(JSON.stringify(told) + "\n", () => process.exit(0));
});
