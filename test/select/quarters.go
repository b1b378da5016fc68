package main

import (
	"slices"
	"strings"
)

// scenarioTest runs each scenario of the lab as a subtest.
const scenarioTest = "TestScenarios"

// quarter is a part of the end-to-end tests. A check of a change runs one quarter.
type quarter []entry

// entry is an end-to-end test or a subtest of TestScenarios.
type entry struct {
	test string
	// duration is the time of the test on two idle cores, in seconds. It balances the
	// quarters and limits nothing.
	duration int
}

// quarters divide the tests that `make test-e2e` runs. A new test goes to the shortest quarter:
// TestEachEndToEndTestIsInOneQuarter names it.
var quarters = [4]quarter{
	{
		{"TestJobWaitsForUnreachableCopy", 31},
		{"TestClusterProfileCredentials", 43},
		{"TestRevokedNominationOfAdmittedCopyIsRestored", 17},
		{"TestLostCopyIsReplaced", 23},
		{"TestCohortBorrowsAndReclaimsAcrossClusters", 38},
		{"TestGateReportsMissingPlacement", 2},
		{"TestSourceReportsThanosOutage", 4},
		{"TestQueueWithoutGateRunsJobs", 11},
		{"TestCheckRemovedFromQueueReleasesWaitingJob", 9},
		{"TestGateWaitsForTheOtherCheck", 20},
		{"TestPartialAdmissionOnTheHub", 20},
		{"TestPreemptionOnWorker", 20},
		{"TestRecordingRulesReturnSeries", 20},
		{"TestUpgradeAndRemovalUnderLoad", 240},
		{"TestScenarios/shadow", 150},
		{"TestScenarios/packing", 70},
	},
	{
		{"TestAddOn", 115},
		{"TestYieldingJobLetsSmallerJobRun", 13},
		{"TestParkedJobReturns", 40},
		{"TestWorkerWithoutQueueIsSkipped", 20},
		{"TestWorkerWithoutQuotaIsSkipped", 15},
		{"TestLeaderIsKilledDuringBurst", 35},
		{"TestFinishedJobHasNoCopy", 4},
		{"TestLabCommands", 8},
		{"TestPolicyReportsPositionOfPromQLError", 3},
		{"TestConnect", 52},
		{"TestJobsArePlacedAsAWhole", 40},
		{"TestNominationPolicyClearsOwnNominations", 20},
		{"TestPartialAdmissionOnTheWorker", 20},
		{"TestBurstFillsTwoClustersEvenly", 20},
		{"TestPodGroupIsPlacedAsAWhole", 30},
		{"TestVirtualNodePodsGetNodeSelector", 20},
		{"TestFitEqualsTheScheduler", 100},
		{"TestScenarios/whole-nodes", 21},
		{"TestScenarios/worker-unreachable", 28},
		{"TestScenarios/operator-gone", 9},
		{"TestScenarios/prerequisite", 24},
		{"TestScenarios/idle", 60},
	},
	{
		{"TestStaleSamplesApplyOnStale", 31},
		{"TestExplanationsRequireAuthorization", 23},
		{"TestExplainWorkload", 36},
		{"TestOutageOfOneSidecarAffectsOnlyItsCluster", 15},
		{"TestDecisionsContinueAfterOperatorsAreLost", 41},
		{"TestGateReportsConflictingDispatcher", 21},
		{"TestPrintedCommands", 13},
		{"TestElasticJobGrowsAndShrinks", 7},
		{"TestDetectsKueuesNominationPolicy", 6},
		{"TestScoreChangeKeepsRunningJob", 20},
		{"TestDashboardQueriesReturnSeries", 60},
		{"TestScenarios/burst", 33},
		{"TestScenarios/cpu-poor", 30},
		{"TestScenarios/forged-exporter", 40},
		{"TestScenarios/exporters-gone", 98},
		{"TestScenarios/preemption", 32},
		{"TestScenarios/quota", 50},
		{"TestScenarios/shares", 45},
		{"TestScenarios/topology", 45},
		{"TestScenarios/trial", 80},
		{"TestScenarios/tpu-slice", 45},
	},
	{
		{"TestAddOnPlatforms", 33},
		{"TestIncrementalDispatcherFollowsGateOrder", 64},
		{"TestDeactivatedJobRunsAfterActivation", 20},
		{"TestCopiesFollowNominations", 25},
		{"TestRecreatedCheckAdmitsWaitingJob", 10},
		{"TestGateChangeAppliesToWaitingJob", 10},
		{"TestLeaderWorkerSetIsPlacedAsAWhole", 4},
		{"TestUrgentJobDoesNotStarveBehindSmallOnes", 60},
		{"TestJobsStartByPriority", 45},
		{"TestGateDecidesBeforePreemption", 60},
		{"TestInterferenceLowersTheScore", 20},
		{"TestDeletedGateKeepsRunningJobs", 20},
		{"TestJobWhosePodsAreNotReadyIsDecidedAgain", 40},
		{"TestFitEqualsTheSchedulerOfResourceClaims", 60},
		{"TestDrainedClusterIsReleasedAfterItsJobs", 20},
		{"TestScenarios/gpu-lost", 21},
		{"TestScenarios/big-job", 26},
		{"TestScenarios/nvlink", 50},
		{"TestScenarios/profile", 35},
		{"TestScenarios/rebalance", 100},
		{"TestQueueOfWorkersHasAnotherName", 15},
	},
}

// seconds returns the time that the quarter takes, without the start of the fleet.
func (q quarter) seconds() int {
	sum := 0
	for _, e := range q {
		sum += e.duration
	}
	return sum
}

// pattern returns the regexp that makes `go test -run` run the quarter and the other tests. Its
// alternatives are a list of tests and the subtests of TestScenarios.
func (q quarter) pattern(others ...string) string {
	tests, scenarios := slices.Clone(others), []string(nil)
	for _, e := range q {
		if name, isScenario := strings.CutPrefix(e.test, scenarioTest+"/"); isScenario {
			scenarios = append(scenarios, name)
		} else if !slices.Contains(others, e.test) {
			tests = append(tests, e.test)
		}
	}
	return alternatives(tests) + "|^" + scenarioTest + "$/" + alternatives(scenarios)
}

// fastTests returns the end-to-end tests without the build tag long.
func fastTests(dir string) ([]string, error) {
	fast, err := testsOfTag(dir, "e2e", "./test/e2e")
	return fast.tests, err
}
